"""Every installed engine with a small model on a real GPU; a skip names what the others lack.

`make test-gpu` runs these and the contract in tests/engines. The checks are from benchmarks/gpu/pipeline.py.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.checks import arithmetic, halving, memory, reference
from engines.errors import EngineUnavailable
from engines.manifest import MANIFEST_FILE, ONNX_FILE, MultipleSize, read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import compare
from engines.parity.probes import probe_feeds
from service.devices.gpu_cvcuda import load_cvcuda
from tests.engines.conftest import conv_graph, tiny_manifest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default::UserWarning:torch"),  # the host's torch emits warnings of its own
    pytest.mark.filterwarnings("default::DeprecationWarning:torch"),
]
ENGINES = ("trt", "inductor", "onnxrt-cuda")
BATCHES = 10_000


def graph_model(folder: Path, sides: tuple[int, ...] = (16, 32)) -> Path:
    graph = conv_graph(half=True)
    size = MultipleSize(multiple_of=8, sides=sides)
    manifest = tiny_manifest(onnx_sha256=hashlib.sha256(graph).hexdigest(), precision="fp16", size=size)
    directory = folder / manifest.name / str(manifest.version)
    directory.mkdir(parents=True)
    (directory / ONNX_FILE).write_bytes(graph)
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
    return directory


def program_model(folder: Path, sides: tuple[int, ...] = (64, 128)) -> Path:
    pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
    from benchmarks.gpu_engines.engine_models import SMALL, publish  # noqa: PLC0415 -- loads torch

    directory = publish(SMALL, folder)
    size = MultipleSize(multiple_of=8, sides=sides)
    manifest = read_manifest(directory).model_copy(update={"size": size})
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
    return directory


def opened(name: str, folder: Path, *sides: int) -> Bench:
    """Return a bench with the engine; skips the test with the missing part if it is not installed."""
    publish = program_model if name == "inductor" else graph_model
    model = publish(folder / "models", sides) if sides else publish(folder / "models")
    out, cache = folder / "said.json", folder / "cache"
    made = Bench(
        argparse.Namespace(model=model, engine=name, cache=cache, max_batch=8, batches=BATCHES, out=out),
        read_manifest(model),
    )
    try:
        load_cvcuda()
        assert made.engine
    except EngineUnavailable as error:
        pytest.skip(f"{name}: {error}")
    return made


@pytest.fixture(scope="module", params=ENGINES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench for each installed engine."""
    made = opened(request.param, tmp_path_factory.mktemp("gpu"))
    yield made
    made.engine.close()


def test_engine_computes_what_the_reference_computes(bench: Bench) -> None:
    reference_engine = OnnxRuntimeEngine(bench.arguments.model, bench.manifest)
    found = compare(
        lambda feed: reference_engine.infer(feed)["output"],
        lambda feed: bench.engine.infer(feed)["output"],
        list(probe_feeds(bench.manifest)),
    )
    assert found.passes(bench.manifest.parity.bar_db), found


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(arithmetic, id="cvcuda-does-what-numpy-does"),
        pytest.param(reference, id="overlapped-batches-are-those-of-one-at-a-time"),
        pytest.param(memory, id="nothing-grows-over-ten-thousand-batches"),
    ],
)
def test_each_check_of_the_device_passes(bench: Bench, check: Callable[[Bench], None]) -> None:
    check(bench)


@pytest.mark.parametrize("name", ENGINES)
def test_a_batch_that_does_not_fit_is_halved(name: str, tmp_path: Path) -> None:
    made = opened(name, tmp_path, 1024)  # a batch takes 200 MiB
    try:
        halving(made)
    finally:
        made.engine.close()
