from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from export.errors import QuantisationRefused
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.options import FillNetOptions
from export.int8.calibrating import calibrate
from export.int8.graph import convolutions
from export.int8.keeping import RANKED_ON, choose_layers, fewest, hole_psnr_db, multiplications
from export.onnx_graph import write_graph
from tests.export.int8.test_calibrating import feeds_of, ignore

FAMILY = FillNet()
TINY = FillNetOptions(widths="6,4", encoder="1,0", decoder="0,1")


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory, make_net):
    folder = tmp_path_factory.mktemp("graph")
    write_graph(FAMILY.lower(make_net(FAMILY, TINY), TINY), FAMILY.interface(TINY), folder / "fp32.onnx")
    return folder / "fp32.onnx", calibrate(folder / "fp32.onnx", feeds_of(3), folder / "watched.onnx", ignore)


def choose(calibrated, tmp_path, bars, notify=ignore, **changed):
    graph, scales = calibrated
    scales = {name: replace(scale, **changed.get(name, {})) for name, scale in scales.items()}
    return choose_layers(graph, scales, feeds_of(3), tmp_path / "tried.onnx", bars, notify)


def kinds(model):
    return [node.op_type for node in model.graph.node]


def test_no_layer_is_kept_where_the_bars_are_low(calibrated, tmp_path):
    chosen = choose(calibrated, tmp_path, (5.0, 4.0))
    assert chosen.kept == ()
    assert kinds(chosen.model).count("QuantizeLinear") == len(chosen.layers)


def test_a_layer_that_spoils_the_fills_is_kept_and_named_first(calibrated, tmp_path):
    lines: list[str] = []
    chosen = choose(calibrated, tmp_path, (25.0, 20.0), lines.append, **{"/net/pixels/Conv": {"limit": 0.01}})
    assert "/net/pixels/Conv" in chosen.kept
    assert chosen.layers[0].name == "/net/pixels/Conv"
    assert chosen.layers[0].alone_db < chosen.layers[-1].alone_db
    assert kinds(chosen.model).count("QuantizeLinear") == len(chosen.layers) - len(chosen.kept) > 0
    assert lines[0].startswith("layer 1 of ")
    assert "layers kept: " in lines[-1]


def test_how_many_layers_are_kept_depends_on_pictures_beyond_those_that_rank_them(calibrated, tmp_path):
    graph, scales = calibrated
    ordinary = list(feeds_of(3)()) * (RANKED_ON // 3)
    unlike = {name: values * np.float32(2 if name == "image" else 1) for name, values in ordinary[0].items()}

    def kept(feeds):
        return len(choose_layers(graph, scales, lambda: feeds, tmp_path / "tried.onnx", (20.0, 20.0), ignore).kept)

    assert kept([*ordinary, unlike]) > kept(ordinary)


def test_bars_that_nothing_reaches_are_an_error_that_names_the_costly_layers(calibrated, tmp_path):
    with pytest.raises(QuantisationRefused, match=r"no layer can be quantised.*/Conv \(\d+\.\d dB alone\)"):
        choose(calibrated, tmp_path, (119.0, 119.0))


@pytest.mark.parametrize(("least", "found"), [(0, 0), (1, 1), (6, 6), (7, None), (99, None)])
def test_the_fewest_that_are_enough_are_found(least, found):
    assert fewest(7, lambda count: count >= least) == found


def test_only_the_hole_counts():
    wanted, mask = np.zeros((1, 3, 4, 4), np.float32), np.zeros((1, 1, 4, 4), np.float32)
    mask[..., 0] = 1
    found = wanted + np.float32(0.5)
    found[..., 0] = 0.1
    assert hole_psnr_db(found, wanted, mask) == pytest.approx(20, abs=0.01)
    assert hole_psnr_db(wanted, wanted, mask) == 120


def test_multiplications_follow_stride_and_positions(calibrated):
    graph, scales = calibrated
    by_name = {layer.name: layer for layer in convolutions(onnx.load(graph))}
    down, pixels = by_name["/net/down.0/Conv"], by_name["/net/pixels/Conv"]
    assert multiplications(pixels, scales) == 48 * 6 * 9 * 3 * 16 * 16
    assert multiplications(down, scales) == 4 * 6 * 9 * 3 * 8 * 8
