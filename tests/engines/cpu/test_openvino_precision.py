"""bf16 is used where it meets the model's bars: PSNR and, if the manifest sets it, grey levels in a fill."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engines.base import Array, Feed
from engines.cpu.openvino_compiler import Compiler
from engines.cpu.openvino_precision import choose_precision
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import ONNX_FILE, read_manifest
from engines.parity.decisions import DecisionCache
from tests.engines.conftest import conv_graph
from tests.engines.cpu.openvino_engines import needs_bf16


def allowing(levels: float | None) -> dict[str, object]:
    return {"bar_db": 40, "fill_levels": levels, "cases": []}


@pytest.fixture
def options(tmp_path) -> EngineOptions:
    return EngineOptions(choice="openvino", threads=1, cache_dir=tmp_path / "cache")


@needs_bf16
def test_fill_that_differs_by_more_levels_than_promised_is_computed_in_fp32(publish, options):
    directory = publish(onnx_model=conv_graph(), parity=allowing(0.001))
    manifest = read_manifest(directory)
    engine = open_engine(directory, manifest, options)
    assert engine.precision == "fp32"
    assert engine.note.startswith("bf16 refused: ")
    assert engine.note.endswith("grey levels at most, the limit is 0.001 (fill_levels null in manifest.json allows it)")
    unlimited = read_manifest(publish(onnx_model=conv_graph(), parity=allowing(None)))
    assert open_engine(directory, unlimited, options).precision == "bf16"
    assert open_engine(directory, manifest, options).precision == "fp32"  # one decision does not replace the other


@needs_bf16
def test_fill_within_the_promised_levels_is_computed_in_bf16(publish, options):
    directory = publish(onnx_model=conv_graph(), parity=allowing(20))
    engine = open_engine(directory, read_manifest(directory), options)
    assert engine.precision == "bf16"
    assert "grey levels at most, the limit is 20" in engine.note


@needs_bf16
def test_levels_do_not_make_up_for_a_low_psnr(publish, options):
    directory = publish(onnx_model=conv_graph(gain=40), parity={**allowing(255), "bar_db": 60})
    engine = open_engine(directory, read_manifest(directory), options)
    assert engine.precision == "fp32"
    assert engine.note.endswith("the bar is 60 dB")


def test_processor_without_bf16_computes_in_fp32_and_measures_nothing(publish, tmp_path):
    class OldProcessor(Compiler):
        @property
        def has_bf16(self) -> bool:
            return False

    directory, cache = publish(onnx_model=conv_graph()), tmp_path / "precision"
    manifest = read_manifest(directory)
    compiler = OldProcessor(directory / ONNX_FILE, manifest, 1, tmp_path / "openvino")
    decision = choose_precision(compiler, manifest, DecisionCache(cache))
    assert (decision.precision, decision.why) == ("fp32", "this processor has no bf16 instructions")
    assert not cache.exists()


class DifferingIn32(Compiler):
    """A compiler whose bf16 is off by 0.2 in tiles of 32 pixels, and exact in smaller ones."""

    @property
    def has_bf16(self) -> bool:
        return True

    def all_threads_request(self, precision: str) -> Any:
        def infer(feed: Feed, **_: bool) -> list[Array]:
            wrong = precision == "bf16" and feed["image"].shape[2] == 32
            return [np.full_like(feed["image"], 0.7 if wrong else 0.5)]

        return SimpleNamespace(infer=infer)


@pytest.mark.parametrize(("levels", "precision"), [(1, "fp32"), (None, "bf16")])
def test_promised_levels_hold_in_the_largest_tile_too(publish, tmp_path, levels, precision):
    size = {"kind": "multiple", "multiple_of": 8, "sides": [16, 32]}
    directory = publish(onnx_model=conv_graph(), size=size, parity=allowing(levels))
    manifest = read_manifest(directory)
    compiler = DifferingIn32(directory / ONNX_FILE, manifest, 1, tmp_path / "openvino")
    parity_bar = manifest.parity.model_copy(update={"bar_db": 10.0})
    decided = choose_precision(
        compiler, manifest.model_copy(update={"parity": parity_bar}), DecisionCache(tmp_path / "precision")
    )
    assert decided.precision == precision
