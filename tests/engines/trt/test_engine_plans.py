"""Plans and timing caches: built once, then loaded, and rebuilt where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.base import BatchShape
from engines.errors import EngineUnavailable
from engines.plan_cache import PlanCache
from tests.engines.conftest import conv_graph
from tests.engines.trt.bench import Bench, feed_of
from tests.fakes.captured_logs import capture_logs


def replace_content(file: Path, content: bytes) -> None:
    """Replace the content of a cache file under the same facts."""
    start = file.read_bytes().index(b"{")
    header, _ = json.JSONDecoder().raw_decode(file.read_bytes()[start:].decode("latin-1"))
    cache = PlanCache(file.parent)
    assert cache.path(header["facts"]) == file
    cache.put(header["facts"], content)


def test_plan_is_built_once_and_then_loaded(bench, directory):
    bench.open(directory).close()
    engine = bench.open(directory)
    assert bench.trt.builds == 1
    assert engine.note.startswith("fp32 against onnxrt on the CPU: identical")
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


@pytest.mark.parametrize(
    "options", [{"max_batch": 2}, {"version_compatible": True}, {"hardware_compatible": True}, {"level": 2}]
)
def test_other_options_need_another_plan(ten, directory, options):
    ten.open(directory)
    ten.open(directory, **options)
    assert ten.trt.builds == 2
    assert len(ten.plans()) == 2


def test_another_gpu_or_model_needs_another_plan(ten, directory, publish):
    ten.open(directory)
    ten.device.name = b"Other GPU"
    ten.open(directory)
    ten.open(publish(onnx_model=conv_graph(gain=2)))
    assert ten.trt.builds == 3


def test_damaged_plan_is_built_anew(ten, directory):
    ten.open(directory)
    ten.plans()[0].write_bytes(b"\0" * 100)
    ten.open(directory)
    assert ten.trt.builds == 2
    ten.open(directory)
    assert ten.trt.builds == 2


def test_plan_that_the_runtime_refuses_is_built_anew(ten, directory):
    ten.open(directory)
    replace_content(ten.plans()[0], b"foreign")
    with capture_logs() as logs:
        engine = ten.open(directory)
    assert [line["event"] for line in logs] == ["plan refused", "plan is being built"]
    assert "built for another device" in logs[0]["reason"]
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


def test_plan_that_is_refused_on_a_read_only_disk_is_built_anew_all_the_same(ten, directory, monkeypatch):
    ten.open(directory)
    replace_content(ten.plans()[0], b"foreign")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    engine = ten.open(directory)
    assert ten.trt.builds == 2
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


def test_timing_cache_of_the_first_build_serves_the_next(ten, directory):
    ten.open(directory)
    ten.open(directory, max_batch=2)
    assert ten.trt.timing_caches == [b"", b"timings"]


@pytest.mark.parametrize("content", [b"foreign", b"damaged"])
def test_timing_cache_that_does_not_fit_is_started_afresh(ten, directory, content):
    ten.open(directory)
    (timings,) = (ten.plans()[0].parent.parent / "timing").iterdir()
    replace_content(timings, content)
    ten.open(directory, max_batch=2)
    assert ten.trt.timing_caches == [b"", content, b""]


def test_library_that_finds_no_gpu_is_unavailable_with_its_reason(bench, directory):
    bench.trt.finds_no_gpu = True
    with pytest.raises(EngineUnavailable, match="cannot build here: CUDA initialization failure"):
        bench.open(directory)
    bench.trt.finds_no_gpu = False
    bench.open(directory).close()
    bench.trt.finds_no_gpu = True
    with capture_logs() as logs, pytest.raises(EngineUnavailable):
        bench.open(directory)
    assert "does not start: CUDA initialization failure" in logs[0]["reason"]


def test_what_rtx_compiled_is_kept_for_the_next_start(directory, tmp_path):
    bench = Bench(tmp_path / "cache", "rtx")
    bench.open(directory).warm_up([BatchShape(1, 16, 16)])
    assert bench.trt.runtime_caches == []
    bench.open(directory)
    assert bench.trt.runtime_caches == [b"compiled"]


def test_warm_up_without_rtx_keeps_nothing(ten, directory):
    ten.open(directory).warm_up([BatchShape(1, 16, 16)])
    assert not (ten.cache / "runtime").exists()
