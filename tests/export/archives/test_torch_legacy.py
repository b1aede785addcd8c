"""Checkpoints in torch's old format with objects beside the weights: read as their zip form is, and never run."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from export.archives.torch_legacy import MAGIC_PICKLE
from export.checkpoint import read_checkpoint
from export.errors import CheckpointRefused
from tests.export.archives.script_files import called, imported, integer, row, sizes, text

WHOLE = torch.arange(24.0).view(4, 6)
STATE: Mapping[str, Tensor] = {
    "conv.weight": WHOLE,
    "conv.columns": WHOLE.t()[1:3],
    "conv.bias": torch.ones(3).half(),
    "bn.num_batches_tracked": torch.tensor(7),
    "empty": torch.zeros(0, 3),
}
ORDER = b"}(" + text("little_endian") + b"\x88" + text("protocol_version") + integer(1001) + b"u"


def _tensor(shape: tuple[int, ...] = (4,), view: bytes = b"N", function: str = "_rebuild_tensor_v2") -> bytes:
    """Pickle a tensor over the storage `0`; in this format, storages could be views of others."""
    storage = row(text("storage"), imported("torch", "FloatStorage"), text("0"), text("cpu"), integer(4), view) + b"Q"
    hooks = [b"\x89", called(imported("collections", "OrderedDict"))] if function.endswith("2") else []
    return called(imported("torch._utils", function), storage, integer(0), sizes(shape), sizes((1,)), *hooks)


class RunsCode:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch hacked",)


def _saved(path: Path, value: object) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=False)
    assert path.read_bytes().startswith(MAGIC_PICKLE)
    return path


def _assembled(value: bytes, keys: bytes = b"](" + text("0") + b"e", storages: bytes | None = None) -> bytes:
    """Return a file as torch lays it out, with a value that torch need not have pickled."""
    held = struct.pack("<q4f", 4, 1, 2, 3, 4) if storages is None else storages
    pickles = [integer(1001), ORDER, value, keys]
    return MAGIC_PICKLE + b"".join(b"\x80\x02" + each + b"." for each in pickles) + held


@pytest.mark.parametrize(
    "beside",
    [argparse.Namespace(lr=2e-4, names=["a"]), SimpleNamespace(ngf=64), Path("runs/3"), np.float64(31.5)],
    ids=["argparse", "namespace", "path", "number of NumPy"],
)
def test_weights_beside_an_object_are_read_as_torch_wrote_them(beside, tmp_path):
    optimizer = torch.optim.Adam([nn.Parameter(torch.rand(3))])
    optimizer.param_groups[0]["params"][0].sum().backward()
    optimizer.step()  # its moments are stored under integers, which are no keys of a net
    value = {"opt": beside, "optimizer": optimizer.state_dict(), "netG": OrderedDict(STATE), "more": [dict(STATE)]}
    for part in read_checkpoint(_saved(tmp_path / "net.pth", value)).parts:
        assert part.path in ("netG", "more/0")
        assert all(torch.equal(part.state[key], tensor.float()) for key, tensor in STATE.items() if "num" not in key)
        assert part.state["bn.num_batches_tracked"].dtype == torch.int64


def test_files_of_python_2_are_read_too(tmp_path):
    pairs = b"](](" + b"U\x01w" + _tensor() + b"ee"
    path = tmp_path / "net.pth"
    state = called(imported("collections", "OrderedDict"), pairs)
    opt = imported("argparse", "Namespace") + b")\x81}(" + b"U\x02lr" + integer(1) + b"ub"
    path.write_bytes(_assembled(b"}(" + b"U\x05model" + state + b"U\x03opt" + opt + b"u"))
    (part,) = read_checkpoint(path).parts
    assert part.state["w"].tolist() == [1, 2, 3, 4]


def test_weights_of_torch_before_version_0_4_are_read_too(tmp_path):
    path = tmp_path / "net.pth"
    path.write_bytes(_assembled(b"}(" + text("w") + _tensor(function="_rebuild_tensor") + OPT + b"u"))
    assert read_checkpoint(path).parts[0].state["w"].tolist() == [1, 2, 3, 4]


def test_code_beside_the_weights_is_named_and_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = {"opt": argparse.Namespace(lr=1), "netG": dict(STATE), "hook": RunsCode()}
    with pytest.raises(CheckpointRefused, match=r"needs (posix|nt)\.system to be unpickled, .*state_dict\(\) alone"):
        read_checkpoint(_saved(tmp_path / "net.pth", value))
    assert not (tmp_path / "hacked").exists()


OPT = text("opt") + imported("argparse", "Namespace") + b")\x81"
WEIGHT = b"}(" + text("w") + _tensor() + OPT + b"u"
VIEW = row(text("v"), integer(0), integer(4))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_assembled(WEIGHT)[:-5], "truncated or not a torch checkpoint"),
        (_assembled(WEIGHT, storages=b""), "truncated or not a torch checkpoint"),
        (_assembled(WEIGHT, storages=struct.pack("<q4f", -(2**62), 1, 2, 3, 4)), "truncated or not"),
        (_assembled(WEIGHT, storages=struct.pack("<q4f", 2**62, 1, 2, 3, 4)), "truncated or not"),
        (_assembled(WEIGHT, storages=struct.pack("<q1f", 1, 1)), "w claims 4 values but holds fewer"),
        (_assembled(WEIGHT, b"](" + text("0") + text("0") + b"e"), "a storage is not described"),
        (_assembled(WEIGHT, b"](" + text("9") + b"e"), "a storage is not described"),
        (_assembled(WEIGHT, b"]"), "has no storage 0"),
        (_assembled(WEIGHT, integer(3)), "a storage is not described"),
        (_assembled(WEIGHT).replace(ORDER, ORDER.replace(b"\x88", b"\x89")), "not little-endian"),
        (_assembled(b"}(" + text("w") + _tensor(view=VIEW) + OPT + b"u"), "a storage is not described as torch does"),
        (_assembled(b"}(" + OPT + b"u", b"]", b""), "holds no state dict"),
        (_assembled(b"}(" + text("w") + _tensor(shape=(5,)) + OPT + b"u"), "w claims shape"),
        (_assembled(WEIGHT + b"0" * 5), "its pickle is damaged"),
        (_assembled(b"}(" + OPT + text("n") + imported("subprocess", "run") + b"u"), r"needs subprocess\.run"),
    ],
)
def test_damaged_and_hostile_files_are_refused(data, message, tmp_path):
    (tmp_path / "net.pth").write_bytes(data)
    with pytest.raises(CheckpointRefused, match=message):
        read_checkpoint(tmp_path / "net.pth")


def test_every_truncation_is_refused(tmp_path):
    whole = _saved(tmp_path / "net.pth", {"opt": argparse.Namespace(lr=1), "netG": dict(STATE)}).read_bytes()
    for end in range(0, len(whole), 7):
        (tmp_path / "net.pth").write_bytes(whole[:end])
        with pytest.raises(CheckpointRefused):
            read_checkpoint(tmp_path / "net.pth")


def test_a_pickle_without_the_formats_begin_stays_refused(tmp_path):
    buffer = io.BytesIO()
    pickle.dump({"opt": argparse.Namespace(lr=1)}, buffer, protocol=2)
    (tmp_path / "net.pth").write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointRefused, match=r"argparse\.Namespace|a pickle of another program"):
        read_checkpoint(tmp_path / "net.pth")
