from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest

from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.options import FillNetOptions
from export.int8.calibrating import best_limit, calibrate
from export.int8.graph import convolutions
from export.onnx_graph import write_graph

FAMILY = FillNet()
TINY = FillNetOptions(widths="8,6,4", encoder="1,0,1", decoder="0,2,1")


@pytest.fixture(scope="module")
def graph(tmp_path_factory, make_net):
    path = tmp_path_factory.mktemp("graph") / "fp32.onnx"
    write_graph(FAMILY.lower(make_net(FAMILY, TINY), TINY), FAMILY.interface(TINY), path)
    return path


def feeds_of(count, side=64):
    def feeds():
        for seed in range(count):
            rng = np.random.default_rng(seed)
            mask = (rng.random((1, 1, side, side)) < 0.4).astype(np.float32)
            yield {"image": rng.random((1, 3, side, side), np.float32), "mask": mask}

    return feeds


def ignore(line):
    pass


def test_every_layer_gets_a_scale_for_what_flows_into_it(graph, tmp_path):
    lines: list[str] = []
    scales = calibrate(graph, feeds_of(3), tmp_path / "watched.onnx", lines.append)
    layers = convolutions(onnx.load(graph))
    assert list(scales) == [layer.name for layer in layers]
    assert all(len(scales[layer.name].factors) == layer.shape[1] for layer in layers)
    assert all(scale.limit > 0 and scale.positions > 0 for scale in scales.values())
    assert scales["/net/down.0/Conv"].positions == 3 * 16 * 16
    assert scales["/net/down.1/Conv"].positions == 3 * 8 * 8
    assert lines == [f"{what}, picture {number}" for what in ("channels", "ranges") for number in (1, 2, 3)]


def test_uneven_channels_get_uneven_factors_of_mean_one(graph, tmp_path):
    scales = calibrate(graph, feeds_of(2), tmp_path / "watched.onnx", ignore)
    assert max(np.ptp(scale.factors) for scale in scales.values()) > 0.1
    for scale in scales.values():
        assert scale.factors.min() > 0
        assert scale.factors.mean() == pytest.approx(1, abs=1e-3)


def test_memory_does_not_grow_with_the_number_of_pictures(graph, tmp_path):
    def peak(count):
        tracemalloc.start()
        calibrate(graph, feeds_of(count), tmp_path / "watched.onnx", ignore)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)  # first use of libraries
    assert peak(40) < 1.3 * peak(4)


def test_even_magnitudes_are_not_cut():
    assert best_limit(np.full(2048, 10), 4.0) > 3.8


def test_one_far_outlier_is_cut():
    counts = np.zeros(2048, np.int64)
    counts[:100], counts[-1] = 100_000, 1
    assert best_limit(counts, 20.48) < 10


def test_more_outliers_raise_the_limit():
    few, many = np.zeros(2048, np.int64), np.zeros(2048, np.int64)
    few[:100], few[-1] = 100_000, 1
    many[:100], many[-1] = 100_000, 10_000
    assert best_limit(many, 20.48) > best_limit(few, 20.48)
