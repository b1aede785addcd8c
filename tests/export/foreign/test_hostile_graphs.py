"""Each hostile file is refused with a reason; nothing is published, and no limit is exceeded."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from onnx import ModelProto, TensorProto

from export.errors import ExportError
from export.foreign.importing import ImportRequest, ReadGraph, import_model
from export.foreign.messages import Limits
from export.foreign.running import read_in_child
from tests.export.foreign.hostile_graphs import GRAPHS
from tests.export.foreign.inpainters import carve_layout
from tests.export.foreign.reading import read_unguarded

pytestmark = pytest.mark.slow
PICTURES = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    """Import a file that must be refused; returns the message."""

    def refused(path: Path, read: ReadGraph = read_unguarded, memory_gib: float = 3, seconds: float = 60) -> str:
        repository = tmp_path / "models"
        limits = Limits(memory_bytes=int(memory_gib * 2**30), seconds=seconds)
        request = ImportRequest(path, "foreign", PICTURES, output=repository, limits=limits)
        with pytest.raises(ExportError) as caught:
            import_model(request, lambda step: None, read)
        assert list(repository.iterdir()) == []
        assert str(caught.value).isprintable()
        return str(caught.value)

    return refused


@pytest.mark.parametrize("name", GRAPHS)
def test_hostile_graph_is_refused_with_the_reason(name, refusal, tmp_path):
    make, reason = GRAPHS[name]
    (tmp_path / "foreign.onnx").write_bytes(make().SerializeToString())
    message = refusal(tmp_path / "foreign.onnx")
    assert re.search(reason, message), message


@pytest.mark.parametrize("name", [*GRAPHS][::10])
def test_child_gives_the_same_reason(name, refusal, tmp_path):
    (tmp_path / "foreign.onnx").write_bytes(GRAPHS[name][0]().SerializeToString())
    assert refusal(tmp_path / "foreign.onnx", read_in_child) == refusal(tmp_path / "foreign.onnx")


BYTES = {
    "empty": b"",
    "web page": b"<!doctype html><title>Quota exceeded</title>",
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(2000),
    "git lfs pointer": b"version https://git-lfs.github.com/spec/v1\n",
    "length of 2 GB": b"\x3a\xff\xff\xff\xff\x07abc",
    "truncated": carve_layout(32).SerializeToString()[:3000],
}


@pytest.mark.parametrize("name", BYTES)
def test_file_that_is_no_onnx_is_refused(name, refusal, tmp_path):
    (tmp_path / "foreign.onnx").write_bytes(BYTES[name])
    assert re.search("not an ONNX file|holds no graph|is it an ONNX file", refusal(tmp_path / "foreign.onnx"))


def test_what_is_no_onnx_may_be_a_checkpoint_and_the_other_command_is_named(refusal, tmp_path):
    (tmp_path / "net.pt").write_bytes(BYTES["picture"])
    assert "give torch's checkpoint to retouch export" in refusal(tmp_path / "net.pt")


def test_file_that_is_a_device_or_missing_is_refused(refusal, tmp_path):
    (tmp_path / "endless.onnx").symlink_to("/dev/zero")
    assert "not a regular file" in refusal(tmp_path / "endless.onnx")
    os.mkfifo(tmp_path / "waiting.onnx")
    assert "not a regular file" in refusal(tmp_path / "waiting.onnx")
    assert "No such file" in refusal(tmp_path / "missing.onnx")


def _with_data_at(location: str, offset: int = 0, length: int | None = None, twice: bool = False) -> ModelProto:
    model = carve_layout(32)
    tensor = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    moved = [tensor]
    if twice:
        moved.append(model.graph.initializer.add(name="second", data_type=tensor.data_type, dims=tensor.dims))
    size = len(tensor.raw_data)
    for each in moved:
        each.ClearField("raw_data")
        each.data_location = TensorProto.EXTERNAL
        for key, content in (
            ("location", location),
            ("offset", offset),
            ("length", size if length is None else length),
        ):
            each.external_data.add(key=key, value=str(content))
    return model


EXTERNAL: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "above the folder": (lambda: _with_data_at("../secret"), "beside the graph only"),
    "absolute": (lambda: _with_data_at("/etc/passwd"), "beside the graph only"),
    "in a folder": (lambda: _with_data_at("folder/data"), "beside the graph only"),
    "the folder itself": (lambda: _with_data_at(".."), "beside the graph only"),
    "nowhere": (lambda: _with_data_at(""), "beside the graph only"),
    "with a zero byte": (lambda: _with_data_at("data\0.bin"), "beside the graph only"),
    "a link": (lambda: _with_data_at("link"), "it is a link"),
    "a pipe": (lambda: _with_data_at("pipe"), "not a regular file"),
    "missing": (lambda: _with_data_at("absent"), "No such file"),
    "past the end": (lambda: _with_data_at("data", 4000), "ends after 4096 bytes"),
    "before the beginning": (lambda: _with_data_at("data", -8), "offset -8"),
    "at no number": (lambda: _with_data_at("data", 2**70), "offset"),
    "of another length": (lambda: _with_data_at("data", 0, 4), "length 4"),
    "overlapping": (lambda: _with_data_at("data", twice=True), "overlaps"),
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_external_data_is_refused_where_it_may_not_be(name, refusal, tmp_path):
    make, reason = EXTERNAL[name]
    folder = tmp_path / "foreign"
    (folder / "folder").mkdir(parents=True)
    for path in (folder / "data", folder / "folder" / "data", tmp_path / "secret"):
        path.write_bytes(bytes(4096))
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    (folder / "foreign.onnx").write_bytes(make().SerializeToString())
    assert reason in refusal(folder / "foreign.onnx")


def test_a_graph_that_takes_too_long_is_refused(refusal, tmp_path):
    (tmp_path / "slow.onnx").write_bytes(carve_layout(2048).SerializeToString())
    began = monotonic()
    assert "took more than 2 s" in refusal(tmp_path / "slow.onnx", read_in_child, seconds=2)
    assert monotonic() - began < 10


def test_a_graph_that_needs_too_much_memory_is_refused(refusal, tmp_path):
    (tmp_path / "large.onnx").write_bytes(carve_layout(6000).SerializeToString())
    message = refusal(tmp_path / "large.onnx", read_in_child, memory_gib=1.5)
    assert re.search("address space|died|bad_alloc|llocat", message), message
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 3 * 2**20  # KiB, of the largest child so far
