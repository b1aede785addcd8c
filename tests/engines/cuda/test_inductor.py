"""The inductor engine keeps the engine contract; tested on the CPU with torch's eager interpreter as backend."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape, blank_feed
from engines.cuda.inductor import PROGRAM_FILE
from engines.errors import (
    EngineDead,
    EngineFailed,
    EngineOutOfMemory,
    EngineUnavailable,
    ParityTooLow,
)
from engines.onnxrt import OnnxRuntimeEngine
from tests.engines.conftest import SEVERAL_SAMPLES, conv_graph, several_samples_graph
from tests.engines.cuda.programs import Net, batches_of, feed_of, open_it, write_program

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
TorchDispatchMode: Any = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode


def test_outputs_are_those_of_the_graph_at_every_batch(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    for batch in (1, 3, 5, 6, 8):
        feed = feed_of(engine.manifest, batch, seed=batch)
        output = engine.infer(feed)["output"]
        assert output.shape == (batch, 3, 16, 16)
        np.testing.assert_allclose(output, reference.infer(feed)["output"], atol=1e-5)
    assert engine.note.startswith("fp32 against onnxrt on the CPU:")


def test_products_of_single_precision_are_tf32(directory, tmp_path):
    open_it(directory, tmp_path)
    assert torch.get_float32_matmul_precision() == "high"


class SeveralSamples(Net):
    """The net of `several_samples_graph` in torch."""

    def forward(self, image: Any, mask: Any, latent: Any) -> Any:  # type: ignore[override] # another model
        rows = torch.nn.functional.conv2d(torch.cat([image, mask], 1), self.weight, padding=1)
        return torch.sigmoid(rows[:, None] + latent.mean(2)[:, :, None, None, None])


def test_several_samples_of_each_row_are_those_of_the_graph(publish, tmp_path):
    directory = publish(onnx_model=several_samples_graph(), max_batch=12, **SEVERAL_SAMPLES)
    auto = torch.export.Dim.AUTO
    batch = torch.export.Dim("b", max=64)
    pixels = {0: batch, 2: auto, 3: auto}
    inputs = (torch.zeros(2, 3, 16, 24), torch.zeros(2, 1, 16, 24), torch.zeros(2, 3, 8))
    shapes = (pixels, pixels, {0: batch, 1: auto})
    torch.export.save(
        torch.export.export(SeveralSamples().eval(), inputs, dynamic_shapes=shapes), directory / PROGRAM_FILE
    )
    engine = open_it(directory, tmp_path, max_batch=12)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    full = blank_feed(engine.manifest, BatchShape(3, 32, 32, 4))  # would not fit if padded to 4 rows
    assert engine.infer(full)["output"].shape == (3, 4, 3, 32, 32)
    for batch_size, samples in ((1, 1), (1, 4), (3, 2), (1, 8)):
        feed = feed_of(engine.manifest, batch_size, samples=samples)
        output = engine.infer(feed)["output"]
        assert output.shape == (batch_size, samples, 3, 16, 16)
        np.testing.assert_allclose(output, reference.infer(feed)["output"], atol=1e-5)


def test_batches_are_padded_to_few_sizes_so_that_few_are_compiled(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    for batch in (1, 2, 3, 4, 5, 6):
        engine.infer(feed_of(engine.manifest, batch))
    assert batches_of(engine, 16) == [1, 2, 4, 6]
    assert batches_of(engine, 32) == [1]  # compiled for the parity gate


def test_outputs_of_one_batch_do_not_leak_into_the_next(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    wanted = engine.infer(feed_of(engine.manifest, 3, seed=1))["output"].copy()
    engine.infer(feed_of(engine.manifest, 4, seed=2))
    np.testing.assert_array_equal(engine.infer(feed_of(engine.manifest, 3, seed=1))["output"], wanted)


def test_model_without_a_program_is_told_how_to_get_one(publish, tmp_path):
    with pytest.raises(EngineUnavailable, match="retouch export --program writes it"):
        open_it(publish(onnx_model=conv_graph()), tmp_path)


def test_damaged_program_is_unavailable(directory, tmp_path):
    (directory / PROGRAM_FILE).write_bytes(b"PK\3\4 cut off")
    with pytest.raises(EngineUnavailable, match=r"cannot load the program of tiny/1.*write it anew"):
        open_it(directory, tmp_path)


def test_program_of_other_weights_is_refused_by_parity(directory, tmp_path):
    write_program(directory, gain=3)
    with pytest.raises(ParityTooLow, match="tiny/1 on inductor"):
        open_it(directory, tmp_path)


def test_missing_torch_is_named(directory, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineUnavailable, match="torch is not installed"):
        open_it(directory, tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_host_without_a_gpu_is_unavailable(directory, tmp_path):
    with pytest.raises(EngineUnavailable, match="torch sees no NVIDIA GPU"):
        open_it(directory, tmp_path, device="cuda:0")


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (RuntimeError("sizes do not match"), EngineFailed),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), EngineOutOfMemory),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), EngineDead),
    ],
    ids=["batch", "memory", "context"],
)
def test_errors_say_what_can_be_done(directory, tmp_path, monkeypatch, error, translated):
    engine = open_it(directory, tmp_path)

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(engine, "_run_batch", fail)
    with pytest.raises(translated, match="tiny/1 on inductor"):
        engine.infer(feed_of(engine.manifest, 1))


def test_closed_engine_is_dead(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    engine.close()
    engine.close()
    with pytest.raises(EngineDead, match="closed"):
        engine.infer(feed_of(engine.manifest, 1))


def test_what_was_compiled_is_kept_for_the_next_start(directory, tmp_path, monkeypatch):
    loaded: list[bytes] = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"compiled", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", loaded.append)
    open_it(directory, tmp_path).warm_up([BatchShape(1, 16, 16)])
    assert loaded == []
    open_it(directory, tmp_path)
    assert loaded == [b"compiled"]
    stat = (directory / PROGRAM_FILE).stat()
    os.utime(directory / PROGRAM_FILE, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    open_it(directory, tmp_path)
    assert loaded == [b"compiled"]


def test_nothing_compiled_keeps_nothing(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: None)
    open_it(directory, tmp_path).warm_up([BatchShape(1, 16, 16)])
    assert not (tmp_path / "inductor").exists()
