"""Wheels for one GPU: the code for other GPUs is blanked, and nothing else moves or changes."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu_host.one_gpu_wheels import blank_other_gpus, rewrite

_PTX, _ELF = 1, 2


def entry(kind: int, arch: int, code: bytes) -> bytes:
    """Return an entry of a fat binary: a header of 64 bytes with the GPU's generation at byte 28, then the code."""
    header = struct.pack("<HHIQ", kind, 0x101, 64, len(code)).ljust(28, b"\x01") + struct.pack("<I", arch)
    return header.ljust(64, b"\x01") + code


def fat_binary(*entries: bytes) -> bytes:
    inside = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inside)) + inside


def test_only_the_code_of_other_gpus_is_blanked() -> None:
    older, newer = entry(_ELF, 80, b"older gpu"), entry(_ELF, 100, b"newer gpu")
    before = b"text " + fat_binary(older, entry(_ELF, 90, b"this gpu"), newer) + b" more text"
    data = bytearray(before)
    assert blank_other_gpus(data, 90) == len(b"older gpu") + len(b"newer gpu")
    assert bytes(data) == before.replace(b"older gpu", bytes(9)).replace(b"newer gpu", bytes(9))


def test_without_code_for_this_gpu_the_ptx_that_its_driver_compiles_is_kept() -> None:
    data = bytearray(
        fat_binary(entry(_ELF, 80, b"older gpu"), entry(_PTX, 80, b"portable"), entry(_PTX, 100, b"later"))
    )
    blank_other_gpus(data, 90)
    assert b"portable" in data
    assert b"older gpu" not in data
    assert b"later" not in data


def test_code_of_the_same_generation_runs_and_ptx_beside_it_is_not_needed() -> None:
    data = bytearray(fat_binary(entry(_ELF, 80, b"code of 8.0"), entry(_PTX, 86, b"portable")))
    blank_other_gpus(data, 86)
    assert b"code of 8.0" in data
    assert b"portable" not in data


@pytest.mark.parametrize("tail", [b"", b"\x02\x00\x10\x00" + bytes(8), b"\x01\x00\x10\x00" + b"\xff" * 8])
def test_the_magic_number_by_chance_changes_nothing(tail: bytes) -> None:
    before = b"..." + struct.pack("<I", 0xBA55ED50) + tail
    data = bytearray(before)
    assert blank_other_gpus(data, 90) == 0
    assert bytes(data) == before


def test_a_rewritten_wheel_has_the_same_files_but_no_modules_of_other_pythons(tmp_path: Path) -> None:
    wheel = tmp_path / "some-1-py3-none-any.whl"
    library = fat_binary(entry(_ELF, 80, b"older gpu")) + b"x" * 1_000_000
    modules = [f"some/_it.cpython-{version}-x86_64-linux-gnu.so" for version in (311, 312)]
    with zipfile.ZipFile(wheel, "w") as target:
        target.writestr("some/lib.so.13", library)
        for module in modules:
            target.writestr(module, b"module")
    rewrite(wheel, 90, "3.12")
    with zipfile.ZipFile(wheel) as found:
        assert found.namelist() == ["some/lib.so.13", *modules]
        assert found.read("some/lib.so.13") == library.replace(b"older gpu", bytes(9))
        assert [found.read(module) for module in modules] == [b"", b"module"]
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]
