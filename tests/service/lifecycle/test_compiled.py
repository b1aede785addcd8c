"""Loading the libraries that are compiled when Retouch is installed."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from service.devices import planes_kernel
from service.imaging.files import png_filters, scanlines
from service.imaging.pasting import kernel
from service.imaging.texture import patch_match
from service.lifecycle import compiled
from service.lifecycle.compiled import HOW_TO_INSTALL, address, address_of_rows, load_library, reference
from tests.fakes.captured_logs import capture_logs
from tests.service.extensions import required

CALLERS = {
    "devices/planes.cpp": planes_kernel,
    "imaging/files/png_filters.cpp": png_filters,
    "imaging/files/scanlines.cpp": scanlines,
    "imaging/pasting/pasting.cpp": kernel,
    "imaging/texture/patch_match.cpp": patch_match,
}
"""The modules that call the compiled libraries, by C++ source."""
each_caller = pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
FOLDER = Path(compiled.__file__).parents[1]


def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Path:
    """Compile `source` to a library, which is then found under every name; returns its path."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path / "_built.abi3.so"
    subprocess.run(
        ["g++", "-xc++", "-fPIC", "-shared", "-o", library, "-"], input=source, text=True, check=True, timeout=60
    )
    found = importlib.util.spec_from_file_location("_built", library)
    monkeypatch.setattr(compiled, "find_spec", lambda _: found)
    return library


@pytest.mark.parametrize(
    "source",
    [
        'extern "C" void find_seam() {}',
        'extern "C" unsigned built_from() { return 0x89abcdefu; }',
    ],
    ids=["without a digest", "of another version"],
)
def test_a_library_that_was_built_from_another_source_is_not_used_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    library = build(tmp_path, monkeypatch, source)
    with capture_logs() as lines:
        assert load_library("service.imaging._built", 0x89ABCDEE) is None
    (line,) = lines
    assert (line["event"], line["log_level"], line["library"]) == (
        "compiled library is not used",
        "warning",
        str(library),
    )
    assert "another version" in line["reason"]
    assert "install" in line["to_do"]


def test_a_library_that_was_built_from_the_source_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, monkeypatch, 'extern "C" unsigned built_from() { return 0x89abcdefu; }')
    assert load_library("service.imaging._built", 0x89ABCDEF) is not None


@pytest.mark.parametrize(("file", "caller"), CALLERS.items(), ids=CALLERS)
def test_each_source_and_its_caller_have_the_digest_of_the_source(file: str, caller: ModuleType) -> None:
    lines = (FOLDER / file).read_text().splitlines(keepends=True)
    (own,) = [line for line in lines if "built_from()" in line]
    digest = zlib.crc32("".join(line for line in lines if line is not own).encode())
    assert (re.findall(r"0x\w+", own), f"0x{caller._SOURCE:08x}") == ([f"0x{digest:08x}"], f"0x{digest:08x}")


@pytest.mark.skipif("EXTENSIONS_REQUIRED" not in os.environ, reason="extensions are optional, except in .ci/run")
@each_caller
def test_all_extensions_are_compiled(caller: ModuleType) -> None:
    """Where a library is missing, its tests skip, so a broken build would go unnoticed."""
    assert caller.installed_kernel() is not None, HOW_TO_INSTALL


@each_caller
def test_a_library_of_another_version_is_not_used_and_logged_once(
    caller: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    required(caller.installed_kernel())
    monkeypatch.setattr(caller, "_SOURCE", 1)
    with capture_logs() as lines:
        assert inspect.unwrap(caller.installed_kernel)() is None
    assert [line["event"] for line in lines] == ["compiled library is not used"]


def test_a_missing_library_loads_as_none() -> None:
    assert load_library("service.imaging._not_compiled", 0) is None


def test_a_library_of_another_system_loads_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "_foreign.abi3.so"
    library.write_bytes(os.urandom(64))
    foreign = importlib.util.spec_from_file_location("_foreign", library)
    monkeypatch.setattr(compiled, "find_spec", lambda _: foreign)
    assert load_library("service.imaging._foreign", 0) is None


def test_arrays_with_gaps_have_no_address() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        address(np.zeros(50)[::2])


def test_a_reference_is_where_the_first_item_is_also_of_an_array_that_cannot_be_written_to() -> None:
    at = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(lambda address: address or 0)
    array = np.arange(6)
    for writeable in (True, False):
        array.flags.writeable = writeable
        assert at(reference(array)) == array.ctypes.data
    with pytest.raises(ValueError, match="contiguous"):
        reference(array[::2])


def test_rows_may_be_apart_but_their_items_may_not() -> None:
    whole = np.zeros((6, 8), np.uint8)
    start, stride = address_of_rows(whole[1:, 2:5])
    assert (start.value, stride.value) == (whole.ctypes.data + 10, 8)
    with pytest.raises(ValueError, match="without gaps"):
        address_of_rows(whole[:, ::2])
