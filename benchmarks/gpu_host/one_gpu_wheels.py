"""Shrinks wheels for a host with one known GPU, so that they can be copied: the code for other GPUs is blanked.

    python3 benchmarks/gpu_host/one_gpu_wheels.py FOLDER --arch 90 --python 3.12

Libraries for CUDA hold machine code for every generation of GPUs in fat binaries: a header, then one entry for each
generation. The entries keep their offsets, but code that this GPU never loads becomes zeros, which compress to almost
nothing; so do extension modules for other Pythons. The files then work only on that GPU.
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import zipfile
from pathlib import Path

_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER, _ENTRY = struct.Struct("<4sHHQ"), struct.Struct("<HHIQ")
_ARCH_AT = 28
_PTX, _ELF = 1, 2
_LARGE = 1_000_000


def entries(data: bytes | bytearray, fat_binary: int) -> list[tuple[int, int, int, int]]:
    """Return kind, generation, start and end of the code of every entry of the fat binary at that offset."""
    _, _, header, size = _HEADER.unpack_from(data, fat_binary)
    found, at, end = [], fat_binary + header, fat_binary + header + size
    while at < end:
        kind, _, entry_header, code = _ENTRY.unpack_from(data, at)
        (arch,) = struct.unpack_from("<I", data, at + _ARCH_AT)
        found.append((kind, arch, at + entry_header, at + entry_header + code))
        at += entry_header + code
    return found


def blank_other_gpus(data: bytearray, arch: int) -> int:
    """Blank the code for other GPUs; returns the number of bytes.

    A fat binary without machine code that runs on this generation keeps its PTX, which the driver compiles.
    """
    blanked, at = 0, data.find(_MAGIC)
    while 0 <= at <= len(data) - _HEADER.size:
        _, version, header, size = _HEADER.unpack_from(data, at)
        if (version, header) != (1, _HEADER.size) or at + header + size > len(data):
            at = data.find(_MAGIC, at + 4)  # the magic number occurred by chance
            continue
        inside = entries(data, at)
        usable = [one for one in inside if one[0] == _ELF and one[1] // 10 == arch // 10 and one[1] <= arch]
        kept = usable or [one for one in inside if one[0] == _PTX and one[1] <= arch]
        for one in inside:
            if one not in kept:
                _, _, start, end = one
                data[start:end] = bytes(end - start)
                blanked += end - start
        at = data.find(_MAGIC, at + header + size)
    return blanked


def rewrite(wheel: Path, arch: int, python: str) -> None:
    """Rewrite one wheel in place."""
    partial = wheel.with_suffix(".partial")
    other = re.compile(rf"\.cpython-(?!{python.replace('.', '')}-)\w+-x86_64-linux-gnu\.so$")
    blanked = 0
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(partial, "w") as target:
        for item in source.infolist():
            data = bytearray(source.read(item))
            if other.search(item.filename):
                data = bytearray()
            elif ".so" in item.filename and len(data) > _LARGE:
                blanked += blank_other_gpus(data, arch)
            target.writestr(item, data, zipfile.ZIP_STORED)  # packed by xz afterwards
    shutil.move(partial, wheel)
    print(f"{wheel.name}: {blanked / 1e6:.0f} MB blanked")


def main() -> None:
    """Rewrite every large wheel of the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the wheels")
    parser.add_argument("--arch", type=int, default=90, help="the GPU's generation: 90 is an H100 or H200")
    parser.add_argument("--python", default="3.12", help="Python version of the wheels")
    options = parser.parse_args()
    for wheel in sorted(options.folder.glob("*.whl")):
        if wheel.stat().st_size > _LARGE:
            rewrite(wheel, options.arch, options.python)


if __name__ == "__main__":
    main()
