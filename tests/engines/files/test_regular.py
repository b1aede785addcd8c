"""Untrusted files are read without blocking and only up to a limit."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.engine_choice import EngineOptions, choose_engine
from engines.errors import ManifestInvalid, ModelCorrupt
from engines.files.regular import irregular_entries, open_regular, read_regular, remedy_for
from engines.manifest import MANIFEST_FILE, ONNX_FILE, read_manifest
from engines.model_files import verify_onnx
from engines.plan_cache import PlanCache


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def waiting(path: Path) -> None:
    path.symlink_to("/dev/tty0" if Path("/dev/tty0").exists() else "/dev/ptmx")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(path.parent)  # the full path may exceed the limit of a socket's address
        try:
            bound.bind(path.name)
        finally:
            os.chdir(here)


def folder(path: Path) -> None:
    path.mkdir()


ODD = [fifo, endless, waiting, unix_socket]
Make = Callable[[Path], None]


@pytest.mark.parametrize("make", [*ODD, folder])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, make: Make) -> None:
    make(tmp_path / "file")
    with pytest.raises(OSError):  # noqa: PT011 -- the error depends on the kind of file
        open_regular(tmp_path / "file")


def test_a_file_is_read_whole_up_to_its_limit_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 4) == b"1234"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_regular(tmp_path / "file", 3)


def test_a_file_that_tells_no_size_is_not_read_to_its_end() -> None:
    """Files in /proc are regular by their mode but report a size of 0, and some are endless."""
    with pytest.raises(OSError, match="grows"):
        read_regular(Path("/proc/self/maps"), 2**20)


def test_odd_entries_are_named_and_links_are_what_they_lead_to(tmp_path: Path) -> None:
    for name, make in {"a": fifo, "b": endless, "c": unix_socket, "d": folder}.items():
        make(tmp_path / name)
    (tmp_path / "e").write_bytes(b"")
    (tmp_path / "f").symlink_to("e")
    (tmp_path / "g").symlink_to("nowhere")
    assert irregular_entries(tmp_path) == ["a", "b", "c"]


@pytest.mark.parametrize("make", ODD)
def test_a_manifest_that_is_no_regular_file_is_refused(tmp_path: Path, make: Make) -> None:
    make(tmp_path / MANIFEST_FILE)
    with pytest.raises(ManifestInvalid, match="cannot be read"):
        read_manifest(tmp_path)


def test_a_manifest_of_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / MANIFEST_FILE).open("wb") as file:
        file.truncate(2**30)  # sparse: takes no space on the disk
    with pytest.raises(ManifestInvalid, match="larger than"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("make", ODD)
def test_a_graph_that_is_no_regular_file_is_refused(publish, make_manifest, make: Make) -> None:
    directory = publish()
    (directory / ONNX_FILE).unlink()
    make(directory / ONNX_FILE)
    with pytest.raises(ModelCorrupt, match="cannot be read"):
        verify_onnx(directory, make_manifest())


@pytest.mark.parametrize("name", ["program.pt2", "weights.data"])
def test_a_model_with_anything_odd_beside_its_files_is_refused_before_a_runtime_opens_it(
    publish, make_manifest, tmp_path: Path, name: str
) -> None:
    directory = publish()
    fifo(directory / name)
    with pytest.raises(ModelCorrupt, match=f"{name}: not a regular file"):
        choose_engine(directory, make_manifest(), EngineOptions(cache_dir=tmp_path / "cache"))


def test_a_plan_that_is_no_regular_file_is_as_good_as_none(tmp_path: Path) -> None:
    cache = PlanCache(tmp_path)
    fifo(cache.path({"model": "tiny/1"}))
    assert cache.get({"model": "tiny/1"}) is None


def test_who_may_not_read_a_file_is_not_told_to_make_another() -> None:
    assert remedy_for(PermissionError(errno.EACCES, "Permission denied"), "copy it again") == "let this user read it"
    assert remedy_for(OSError(errno.EIO, "Input/output error"), "copy it again") == "copy it again"
