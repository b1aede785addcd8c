"""The parity gate compares a GPU engine in every kind of batch for which it has separate kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.base import BatchShape, Feed, Outputs
from engines.errors import ParityTooLow
from engines.feeds import batch_shape
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.decisions import DecisionCache
from engines.parity.gate import require_parity
from tests.engines.conftest import conv_graph

FIXED = {"kind": "fixed", "height": 16, "width": 24}


class Watched(OnnxRuntimeEngine):
    """An engine that records the shapes it computes and gives wrong outputs for one of them."""

    def __init__(self, directory: Path, wrong: BatchShape | None = None) -> None:
        super().__init__(directory, read_manifest(directory), threads=1)
        self.shapes: list[BatchShape] = []
        self.wrong = wrong

    def infer(self, feed: Feed) -> Outputs:
        shape = batch_shape(self.manifest, feed)
        self.shapes.append(shape)
        output = super().infer(feed)["output"]
        return {"output": output + 0.1 * (shape == self.wrong)}


def verdict(engine: Watched, cache: Path, max_batch: int = 4) -> str:
    return require_parity(engine, cache.parent, {"onnx": "x"}, DecisionCache(cache), max_batch)


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


def test_batches_and_lone_rows_of_the_smallest_and_of_the_largest_tile_are_compared(directory):
    engine = Watched(directory)
    verdict(engine, directory / "cache")
    assert engine.shapes == [*[BatchShape(2, 16, 16)] * 3, BatchShape(1, 16, 16), BatchShape(1, 32, 32)]


@pytest.mark.parametrize(
    ("max_batch", "size", "lone"),
    [(1, None, [(32, 32)]), (4, FIXED, [(16, 24)]), (1, FIXED, [])],
    ids=["one row", "one tile", "one row of one tile"],
)
def test_nothing_is_compared_twice(publish, max_batch, size, lone):
    directory = publish(onnx_model=conv_graph(), **({"size": size} if size else {}))
    engine = Watched(directory)
    verdict(engine, directory / "cache", max_batch)
    assert engine.shapes[3:] == [BatchShape(1, *tile) for tile in lone]


@pytest.mark.parametrize("wrong", [BatchShape(1, 16, 16), BatchShape(1, 32, 32)], ids=str)
def test_engine_that_is_wrong_in_lone_rows_only_is_refused_with_the_tile(directory, wrong):
    with pytest.raises(ParityTooLow, match=rf"20\.0 dB on lone {wrong.width}×{wrong.height} inputs"):
        verdict(Watched(directory, wrong), directory / "cache")


def test_verdict_is_remembered_for_the_tiles_that_were_compared(directory, publish):
    verdict(Watched(directory), directory / "cache")
    again = Watched(directory)
    verdict(again, directory / "cache")
    assert again.shapes == []
    publish(onnx_model=conv_graph(), size={"kind": "multiple", "multiple_of": 8, "sides": [16, 48]})
    larger = Watched(directory)
    verdict(larger, directory / "cache")
    assert larger.shapes[-1] == BatchShape(1, 48, 48)
