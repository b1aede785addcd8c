"""Hostile archives: each is refused with a message that names the problem; none runs code, hangs or fills memory."""

from __future__ import annotations

import io
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
import torch

from export.checkpoint import read_checkpoint
from export.errors import ExportError
from export.recognition import recognise
from tests.export.archives.script_files import archive, called, imported, integer, module, row, tensor, text, zipped

TOUCH = text("touch hacked")
GOOD = archive(module({"weight": tensor()}))


def _calls(name: bytes, *arguments: bytes) -> bytes:
    return archive(module({"weight": tensor(), "hook": called(name, *arguments)}))


def _deflated(*names: str) -> bytes:
    """Compress some entries of a good archive whose storage is a bomb of zeros."""
    buffer = io.BytesIO()
    source = zipfile.ZipFile(io.BytesIO(archive(module({"weight": tensor()}), {"0": bytes(50_000_000)})))
    with source, zipfile.ZipFile(buffer, "w") as file:
        for entry in source.infolist():
            kind = zipfile.ZIP_DEFLATED if entry.filename in names else zipfile.ZIP_STORED
            file.writestr(entry.filename, source.read(entry), kind)
    return buffer.getvalue()


def _doubled() -> bytes:
    buffer = io.BytesIO(GOOD)
    with zipfile.ZipFile(buffer, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("net/data/0", bytes(16))
    return buffer.getvalue()


def _overlapping() -> bytes:
    """Return an archive whose index names one storage of a megabyte 27 times."""
    plain = zipped({"net/code/a.py": b"", "net/data.pkl": b"\x80\x02}.", "net/data/0": bytes(1_000_000)})
    start = plain.index(b"PK\x01\x02")
    end = plain.index(b"PK\x05\x06")
    directory = plain[start:end]
    last = directory[directory.rindex(b"PK\x01\x02") :]
    many = directory + b"".join(last[:-1] + bytes([ord("a") + n]) for n in range(26))
    tail = bytearray(plain[end:])
    tail[8:12] = struct.pack("<HH", 29, 29)
    tail[12:16] = struct.pack("<I", len(many))
    return plain[:start] + many + bytes(tail)


def _encrypted() -> bytes:
    data = bytearray(GOOD)
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


def _two_sizes() -> bytes:
    data = bytearray(GOOD)
    at = data.index(b"net/data/0", data.index(b"PK\x01\x02")) - 46
    data[at + 24 : at + 28] = struct.pack("<I", 4_000_000_000)
    return bytes(data)


def _nested() -> bytes:
    """Return sixty modules, each of which holds the next one twice, through the pickle memo."""
    value = module({"weight": tensor()})
    for level in range(60):
        index = struct.pack("<I", level)
        value = module({"a": value + b"r" + index, "b": b"j" + index})
    return archive(value)


def _itself() -> bytes:
    return archive(imported("__torch__", "M") + b")\x81q\x00}(" + text("me") + b"h\x00ub")


def _shared() -> bytes:
    """Return two thousand tensors over one half-precision storage, which would be converted for each."""
    views = {f"w{n}": tensor(count=50_000, shape=(50_000,), kind="HalfStorage") for n in range(2000)}
    return archive(module(views), {"0": bytes(100_000)})


def _lightning(extra: bytes) -> bytes:
    value = b"}(" + text("state_dict") + b"}(" + text("a") + tensor() + b"u" + text("x") + extra + b"u"
    entries = {"net/data.pkl": b"\x80\x02" + value + b".", "net/data/0": bytes(16), "net/version": b"3\n"}
    return zipped(entries)


def _named_at_length() -> bytes:
    """Return a checkpoint in which every one of half a million entries is under a name of two megabytes."""
    return _lightning(row(called(LIGHTNING), b"}(" + text("n" * 2_000_000) + b"](" + b"N" * 500_000 + b"eu"))


def _again_and_again() -> bytes:
    """Return a checkpoint with a dictionary of a hundred thousand entries that has fifty thousand names."""
    entries = b"".join(text(f"{number:x}") + b"N" for number in range(100_000))
    names = b"".join(text(f"{number:x}") + b"h\x00" for number in range(50_000))
    return _lightning(row(called(LIGHTNING), b"}(" + text("a") + b"}q\x00(" + entries + b"u" + names + b"u"))


LIGHTNING = imported("pytorch_lightning.callbacks", "Checkpoint")
FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "system call": (lambda: _calls(imported("os", "system"), TOUCH), r"needs os\.system"),
    "eval": (lambda: _calls(imported("__builtin__", "eval"), TOUCH), "needs eval"),
    "import": (lambda: _calls(imported("builtins", "__import__"), TOUCH), r"needs builtins\.__import__"),
    "torch's own loader": (lambda: _calls(imported("torch", "load"), TOUCH), r"needs torch\.load"),
    "torch's hub": (lambda: _calls(imported("torch.hub", "load"), TOUCH), r"needs torch\.hub\.load"),
    "rebuilding from bytes": (
        lambda: _calls(imported("torch.storage", "_load_from_bytes"), TOUCH),
        r"needs torch\.storage\._load_from_bytes",
    ),
    "name that only begins well": (
        lambda: _calls(imported("__torch__", "a b")),
        r"needs __torch__\.a\.b|holds no state dict|no known",
    ),
    "code instead of tensors": (lambda: archive(called(imported("__torch__", "M"), TOUCH)), "holds no state dict"),
    "code that deletes": (
        lambda: archive(module({"weight": tensor()}), code_evil=b"import os\nos.system('touch hacked')\n"),
        "no known generator",
    ),
    "frozen": (lambda: archive(module({}), {}, constants_0=bytes(64)), "frozen TorchScript program"),
    "bomb in the pickle": (lambda: _deflated("net/data.pkl"), r"entry net/data\.pkl is compressed"),
    "bomb in a storage": (lambda: _deflated("net/data/0"), "entry net/data/0 is compressed"),
    "wrong byte order": (lambda: archive(module({"a": tensor()}), byteorder=b"big"), "not little-endian"),
    "unknown byte order": (lambda: archive(module({"a": tensor()}), byteorder=b"x" * 99), "at most 16 are read"),
    "entry twice": (_doubled, "the name of another"),
    "entries that overlap": (_overlapping, "they overlap"),
    "encrypted": (_encrypted, "is encrypted"),
    "two sizes": (_two_sizes, "has two sizes"),
    "endless pickle": (lambda: archive(b"N0" * 3_000_000 + b"N"), "at most 4194304 are read"),
    "unknown instruction": (lambda: archive(b"\x82\x01"), "EXT1"),
    "memo of four billion": (lambda: archive(b"}r\xff\xff\xff\xff"), "holds no state dict"),
    "tuples in tuples": (lambda: archive(b")" + b"\x85" * 300_000), "holds no state dict"),
    "shape beyond the storage": (lambda: archive(module({"w": tensor(shape=(5,))})), "w claims shape"),
    "strides beyond the storage": (
        lambda: archive(module({"w": tensor(shape=(2, 2), strides=(9, 1))})),
        "w claims shape",
    ),
    "terabyte of one value": (
        lambda: archive(module({"w": tensor(shape=(10**6, 10**6), strides=(0, 0))})),
        "w claims shape",
    ),
    "negative offset": (lambda: archive(module({"w": tensor(offset=-1)})), "w is not described"),
    "negative size": (lambda: archive(module({"w": tensor(shape=(-4,))})), "w is not described"),
    "storage larger than its entry": (lambda: archive(module({"w": tensor(count=99)})), "w claims 99 values"),
    "storage that is missing": (lambda: archive(module({"w": tensor(key="7")})), "has no entry net/data/7"),
    "storage outside the archive": (
        lambda: archive(module({"w": tensor(key="../../../etc/passwd")})),
        "w has no storage",
    ),
    "storage of pickles": (lambda: archive(module({"w": tensor(kind="UntypedStorage")})), "needs torch.UntypedStorage"),
    "tensor without arguments": (
        lambda: archive(module({"w": called(imported("torch._utils", "_rebuild_tensor_v2"))})),
        "w is not described",
    ),
    "quantised": (
        lambda: _calls(imported("torch._utils", "_rebuild_qtensor"), integer(1)),
        r"needs torch\._utils\._rebuild_qtensor",
    ),
    "one storage under many names": (_shared, "share storages more often"),
    "two megabytes of name before every entry": (_named_at_length, "no known generator"),
    "one dictionary under many names": (_again_and_again, "no known generator"),
    "module in itself": (_itself, "nested more deeply"),
    "2^60 modules": (_nested, "nested more deeply"),
    "two nets": (
        lambda: zipped({"a/data.pkl": b"", "b/data.pkl": b"", "a/code/x.py": b"", "a/data/0": b""}),
        "a zip with 2 nets",
    ),
    "truncated": (lambda: GOOD[:-100], "not a torch checkpoint|damaged zip"),
    "NaN": (lambda: archive(module({"w": tensor()}), {"0": struct.pack("<4f", 1, 2, 3, float("nan"))}), "w holds NaN"),
    "system call behind a class of Lightning": (
        lambda: _lightning(row(called(LIGHTNING), called(imported("posix", "system"), TOUCH))),
        r"needs posix\.system",
    ),
    "class that begins like Lightning": (
        lambda: _lightning(row(called(LIGHTNING), called(imported("pytorch_lightning_x", "system"), TOUCH))),
        r"needs pytorch_lightning_x\.system",
    ),
}


def test_there_are_at_least_twenty():
    assert len(FILES) >= 20


@pytest.mark.parametrize("name", FILES)
def test_archive_is_refused_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = FILES[name]
    (tmp_path / "net.pt").write_bytes(make())
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    with pytest.raises(ExportError, match=message):
        recognise(read_checkpoint(tmp_path / "net.pt").parts, None, {})
    assert process_time() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000, "kilobytes"
    assert not (tmp_path / "hacked").exists()


def test_the_archive_they_were_made_from_is_good(tmp_path):
    (tmp_path / "net.pt").write_bytes(GOOD)
    assert torch.equal(read_checkpoint(tmp_path / "net.pt").parts[0].state["weight"], torch.tensor([1.0, 2, 3, 4]))
