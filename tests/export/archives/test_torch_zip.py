from __future__ import annotations

import argparse
import sys
import types
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from export.archives.torch_zip import read_script
from export.archives.zip_entries import open_zip
from export.checkpoint import read_checkpoint
from export.errors import CheckpointRefused
from tests.export.archives import script_files as made


class Sharing(nn.Module):
    """A net whose tensors share storages, and whose trace has constants."""

    whole: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.tied = nn.Conv2d(3, 4, 3)
        self.tied.weight = self.inner[0].weight  # type: ignore[assignment]  # a Sequential's layers have no type
        whole = torch.arange(24.0).view(4, 6)
        self.register_buffer("whole", whole)
        self.register_buffer("columns", whole.t()[1:3])
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("halves", torch.arange(5).half())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.tied(x) + self.whole.sum() + torch.full_like(x[:, :1, 1:-1, 1:-1], 2.5)


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "net.pt"
    torch.jit.save(torch.jit.trace(Sharing().eval(), torch.zeros(1, 3, 8, 8)), path)  # type: ignore[no-untyped-call]
    return path


def _written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "net.pt"
    path.write_bytes(data)
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch deprecates the format of existing files
def test_every_tensor_of_a_program_is_read_as_torch_reads_it(script):
    with open_zip(script) as entries:
        found = read_script(entries)
    wanted = torch.jit.load(script).state_dict()  # type: ignore[no-untyped-call]
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) and found[key].dtype == wanted[key].dtype for key in wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_checkpoint_reader_takes_programs(script):
    (whole, *_) = read_checkpoint(script).parts
    assert "inner.0.weight" in whole.state


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_the_trace_computed_on_is_never_opened(script, tmp_path):
    data = script.read_bytes()
    path = _written(tmp_path, data.replace(b"code/__torch__.py", b"code/__torch__.PY"))
    with open_zip(path) as entries:
        assert "inner.0.weight" in read_script(entries)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_frozen_programs_are_refused_with_what_to_do(tmp_path):
    net = torch.jit.trace(Sharing().eval(), torch.zeros(1, 3, 8, 8))  # type: ignore[no-untyped-call]
    torch.jit.save(torch.jit.freeze(net), tmp_path / "net.pt")  # type: ignore[no-untyped-call]
    with pytest.raises(CheckpointRefused, match=r"frozen TorchScript program .* before it was frozen"):
        read_checkpoint(tmp_path / "net.pt")


def test_an_archive_made_by_hand_is_read_with_and_without_its_byte_order(tmp_path):
    attributes = {
        "weight": made.tensor(),
        "training": b"\x89",
        "place": made.called(made.imported("torch", "device"), made.text("cuda:0")),
        "inner": made.module({"bias": made.tensor(shape=(2,))}),
    }
    for others in ({}, {"byteorder": b"little"}):
        (part,) = read_checkpoint(_written(tmp_path, made.archive(made.module(attributes), **others))).parts
        assert {key: tensor.tolist() for key, tensor in part.state.items()} == {
            "weight": [1, 2, 3, 4],
            "inner.bias": [1, 2],
        }


@pytest.fixture
def lightning(monkeypatch) -> Any:
    """Make classes under the names of Lightning and OmegaConf, which need not be installed."""
    for name in ("pytorch_lightning", "omegaconf"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))

    def make(module: str, name: str, base: type = object) -> Any:
        kind = type(name, (base,), {"__module__": module, "__qualname__": name})
        monkeypatch.setattr(sys.modules[module], name, kind, raising=False)
        return kind

    return make


def test_checkpoints_of_lightning_are_read_without_it(lightning, tmp_path):
    config = lightning("omegaconf", "DictConfig")()
    config.content = {"ngf": 8}
    state = OrderedDict({"generator.a": torch.arange(3.0), "generator.b": nn.Parameter(torch.ones(2))})
    value = {
        "state_dict": state,
        "callbacks": {lightning("pytorch_lightning", "ModelCheckpoint"): {"best": 1.5}},
        "hyper_parameters": lightning("pytorch_lightning", "AttributeDict", dict)(config=config, rate=0.1),
        "more": defaultdict(list, {"epoch": 3}),
    }
    torch.save(value, tmp_path / "best.ckpt")
    whole, generator = read_checkpoint(tmp_path / "best.ckpt").parts
    assert (whole.path, generator.path) == ("state_dict", "state_dict/generator")
    assert {key: tensor.tolist() for key, tensor in generator.state.items()} == {"a": [0, 1, 2], "b": [1, 1]}


def test_a_checkpoint_that_holds_itself_is_read_once(lightning, tmp_path):
    value: dict[str, object] = {"state_dict": {"a": torch.ones(1)}, "x": lightning("omegaconf", "DictConfig")()}
    value["model"] = value
    torch.save(value, tmp_path / "net.ckpt")
    assert [part.path for part in read_checkpoint(tmp_path / "net.ckpt").parts] == ["state_dict"]


def test_arrays_of_numpy_beside_the_weights_are_no_hindrance(tmp_path):
    random_state = np.random.get_state()
    value = {"model": {"a": torch.ones(2)}, "losses": np.zeros(3), "numpy": random_state}
    torch.save(value, tmp_path / "net.pth")
    (part,) = read_checkpoint(tmp_path / "net.pth").parts
    assert (part.path, part.state["a"].tolist()) == ("model", [1, 1])


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
@pytest.mark.parametrize("side", [2, 1100], ids=["small", "large"])
def test_weights_that_are_arrays_of_numpy_are_refused_with_the_way_to_tensors(tmp_path, side, zipped):
    value = {"model": {"conv.weight": np.ones((side, side), np.float32)}}
    torch.save(value, tmp_path / "net.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        CheckpointRefused, match=r"values of NumPy \(.*torch\.from_numpy\(array\).*export that"
    ) as refused:
        read_checkpoint(tmp_path / "net.pth")
    assert ("model/conv.weight" in str(refused.value)) == (side == 2)


def test_numbers_of_numpy_and_paths_beside_the_weights_are_no_hindrance(tmp_path):
    value = {"state_dict": {"a": torch.ones(2)}, "psnr": np.float64(31.5), "epoch": np.int64(3), "folder": tmp_path}
    torch.save(value, tmp_path / "net.ckpt")
    (part,) = read_checkpoint(tmp_path / "net.ckpt").parts
    assert {key: tensor.tolist() for key, tensor in part.state.items()} == {"a": [1, 1]}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])
def test_lists_of_nets_are_read_beside_an_object(tmp_path, zipped):
    value = {"nets": [{"a": torch.ones(2)}], "shadow_params": [torch.zeros(2)], "opt": argparse.Namespace(lr=1)}
    torch.save(value, tmp_path / "net.pth", _use_new_zipfile_serialization=zipped)
    checkpoint = read_checkpoint(tmp_path / "net.pth")
    assert [part.path for part in checkpoint.parts] == ["shadow_params", "nets/0"]
