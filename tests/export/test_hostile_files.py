"""Hostile files: each is refused with a message that names the problem; none runs code or hangs."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import nn

from export.checkpoint import load_strictly, read_checkpoint
from export.errors import ExportError
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from export.recognition import recognise

OPTIONS = Pix2PixOptions(net="unet_128", norm="none", ngf=1)
FIRST, LAST = "model.model.0.weight", "model.model.3.bias"


class Payload:
    """An object whose unpickling calls a function, as an attacker would pickle it."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


def _good() -> dict[str, torch.Tensor]:
    return dict(Pix2Pix().build(OPTIONS).state_dict())


def _saved(value: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def _with(key: str, tensor: object) -> bytes:
    return _saved({**_good(), key: tensor})


def _without(*keys: str) -> bytes:
    return _saved({key: tensor for key, tensor in _good().items() if key not in keys})


def _zip(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _script() -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Conv2d(1, 1, 1)), buffer)
    return buffer.getvalue()


def _deep() -> object:
    value: object = {"a": 1}
    for _ in range(60):
        value = {"a": value, "b": value}
    return value


def _flipped(at: float) -> bytes:
    data = bytearray(_saved(_good()))
    data[int(len(data) * at)] ^= 0xFF
    return bytes(data)


BOMB = _zip({"archive/data.pkl": pickle.dumps([]), "archive/data/0": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
HUGE_PICKLE_LENGTH = b"\x80\x02X" + struct.pack("<I", 2**31 - 1) + b"abc"


def _views(count: int) -> bytes:
    values = torch.zeros(500_000 + count).half()
    return _saved({f"{number}.weight": values[number:] for number in range(count)})


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "system call": (lambda: pickle.dumps(Payload(os.system, "touch hacked")), r"posix\.system|not a torch checkpoint"),
    "system call in a state dict": (lambda: _with("hook", Payload(os.system, "touch hacked")), r"needs posix\.system"),
    "eval": (lambda: _with("hook", Payload(eval, "1/0")), "needs eval to be unpickled"),
    "getattr": (lambda: _with("hook", Payload(getattr, "x", "upper")), "needs getattr to be unpickled"),
    "import": (lambda: _with("hook", Payload(__import__, "os")), "needs __import__ to be unpickled"),
    "open": (lambda: _with("hook", Payload(open, "/etc/passwd")), r"needs (_?io)\.open"),
    "code in the old format": (
        lambda: _saved({"x": Payload(os.system, "touch hacked")}, _use_new_zipfile_serialization=False),
        r"needs posix\.system",
    ),
    "whole module": (lambda: _saved(nn.Conv2d(1, 1, 1)), r"needs torch\.nn\.modules\.conv\.Conv2d"),
    "zip bomb": (lambda: BOMB, "is compressed"),
    "zip without a pickle": (lambda: _zip({"archive/notes.txt": b"hello"}), "not a torch checkpoint"),
    "empty zip": (lambda: _zip({}), "not a torch checkpoint"),
    "truncated zip": (lambda: _saved(_good())[:5000], "truncated or not a torch checkpoint"),
    "truncated old file": (
        lambda: _saved(_good(), _use_new_zipfile_serialization=False)[:5000],
        "truncated or not a torch checkpoint",
    ),
    "pickle that promises 2 GB": (lambda: HUGE_PICKLE_LENGTH, "truncated or not a torch checkpoint"),
    "empty": (lambda: b"", "truncated or not a torch checkpoint"),
    "web page": (lambda: b"<!doctype html><title>Quota exceeded</title>", "not a torch checkpoint"),
    "picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(2000), "not a torch checkpoint"),
    "shell script": (lambda: b"#!/bin/sh\nrm -rf /\n", "not a torch checkpoint"),
    "git lfs pointer": (
        lambda: b"version https://git-lfs.github.com/spec/v1\n",
        "not a torch checkpoint",
    ),
    "damaged directory": (lambda: _flipped(0.995), "damaged|not a torch checkpoint|keys|compressed"),
    "NaN": (lambda: _with(FIRST, torch.full((1, 3, 4, 4), float("nan"))), f"{FIRST} holds NaN"),
    "infinity in half": (lambda: _with(LAST, torch.full((3,), float("inf")).half()), f"{LAST} holds NaN or infinity"),
    "a tensor of a terabyte": (lambda: _with(FIRST, torch.zeros(1).expand(10**6, 10**6)), "claims shape"),
    "a thousand views of a megabyte": (lambda: _views(1000), "share storages more often than those of a net"),
    "sparse": (lambda: _with(FIRST, torch.eye(4).to_sparse()), "is sparse"),
    "quantised": (lambda: _with(FIRST, torch.quantize_per_tensor(torch.ones(4), 1.0, 0, torch.qint8)), "quantised"),
    "complex": (lambda: _with(FIRST, torch.zeros(1, 3, 4, 4, dtype=torch.complex64)), f"{FIRST} holds complex64"),
    "complex in a name that the net lacks": (
        lambda: _with("freqs", torch.zeros(2, dtype=torch.complex128)),
        "freqs holds complex128 values; export needs real numbers",
    ),
    "bits": (lambda: _with(FIRST, torch.zeros(3, dtype=torch.uint8).view(torch.bits8)), f"{FIRST} holds bits8"),
    "no values": (lambda: _with(FIRST, torch.zeros(1, 3, 4, 4, device="meta")), f"{FIRST} has a shape and no values"),
    "nested": (lambda: _with(FIRST, torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)])), "nested"),
    "weights of integers": (lambda: _with(FIRST, torch.zeros(1, 3, 4, 4).int()), f"of integers: {FIRST}"),
    "weights of truth values": (lambda: _with(FIRST, torch.zeros(1, 3, 4, 4).bool()), f"of integers: {FIRST}"),
    "TorchScript of a foreign net": (_script, "no known generator has keys such as weight"),
    "safetensors under another name": (lambda: save(_good()), r"rename it to net\.safetensors"),
    "missing key": (lambda: _without(LAST), f"missing: {LAST}"),
    "foreign key": (lambda: _with("model.model.9.weight", torch.zeros(1)), r"unexpected: model\.model\.9\.weight"),
    "wrong shape": (lambda: _with(LAST, torch.zeros(5)), rf"{LAST} \(5,\) instead of \(3,\)"),
    "foreign net": (
        lambda: _saved(nn.Linear(2, 2).state_dict()),
        "no known generator has keys such as weight",
    ),
    "no weights": (lambda: _saved({"epoch": 3, "lr": 0.1}), "holds no state dict"),
    "a list": (lambda: _saved([torch.zeros(1)]), "holds no state dict"),
    "nested sixty deep and 2^60 wide": (lambda: _saved(_deep()), "holds no state dict"),
    "a thousand nets": (
        lambda: _saved({f"net{number}": {"w": torch.zeros(1)} for number in range(1000)}),
        r"over 256 state dicts .*state_dict\(\) alone",
    ),
    "a thousand nets under prefixes": (
        lambda: _saved({f"gen{number}.w": torch.zeros(1) for number in range(1000)}),
        "over 256 state dicts",
    ),
    "a thousand lists of averages": (
        lambda: _saved({**_good(), **{f"ema{number}": [torch.zeros(1)] for number in range(1000)}}),
        "or 16 lists of averages",
    ),
    "a name of a megabyte": (lambda: _with("parametrizations.a." * 50_000, torch.zeros(1)), "name has 950000 charact"),
    "nets under a name of a megabyte": (
        lambda: _saved({"k" * 1_000_000: {f"n{number}": {"w": torch.zeros(1)} for number in range(100)}}),
        "holds no state dict",
    ),
    "a thousand channels": (
        lambda: _with(FIRST, torch.zeros(1, 1000, 4, 4)),
        "no known generator|shape|channels",
    ),
}


def _load(path: Path) -> None:
    found = recognise(read_checkpoint(path).parts, None, {})
    load_strictly(found.family.build(found.options), found.family.translate(found.state, found.options).state)


def test_there_are_at_least_forty():
    assert len(FILES) >= 40


# torch itself warns about some of the files
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FILES)
def test_file_is_refused_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, message = FILES[name]
    (tmp_path / "net.pth").write_bytes(make())
    with pytest.raises(ExportError, match=message) as refused:
        _load(tmp_path / "net.pth")
    assert not re.search("weights_only|[Pp]y[Tt]orch|enforce fail", str(refused.value)), "torch's words are not ours"
    assert not (tmp_path / "hacked").exists()


def test_the_file_they_were_made_from_is_good(tmp_path):
    (tmp_path / "net.pth").write_bytes(_saved(_good()))
    assert recognise(read_checkpoint(tmp_path / "net.pth").parts, None, {}).options == OPTIONS
