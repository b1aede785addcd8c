"""Checkpoints as training scripts of real projects save them come back with the output of the net that was saved."""

from __future__ import annotations

import argparse
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from export.checkpoint import read_checkpoint
from export.errors import CheckpointRefused
from export.generators.family import State
from tests.export.states.tiny_nets import TINY, made, outputs, reread

DISCRIMINATOR = {"main.0.weight": torch.rand(4, 3, 4, 4), "head.bias": torch.rand(3)}


def _under(prefix: str, state: State) -> State:
    return {prefix + key: tensor for key, tensor in state.items()}


def _other(state: State) -> State:
    """Return other weights of the same net, which are not to be used."""
    return {key: tensor * 2 for key, tensor in state.items()}


def _compiled_inside(state: State) -> State:
    return {key.replace(".", "._orig_mod.", 1): tensor for key, tensor in state.items()}


def _profiled(state: State) -> State:
    layers = dict.fromkeys(key.rpartition(".")[0] for key in state)
    counts = {f"{layer}.{name}": torch.ones(1) for layer in layers for name in ("total_ops", "total_params")}
    return {**state, **counts, "total_ops": torch.ones(1)}


FORMS: dict[str, Callable[[State], object]] = {
    "compiled and parallel": lambda state: {"model": _under("module._orig_mod.", state)},
    "a compiled part": _compiled_inside,
    "Fabric": lambda state: {"generator": _under("_forward_module.", state), "step": 3},
    "FSDP": lambda state: _under("_fsdp_wrapped_module.", state),
    "Lightning": lambda state: {
        "state_dict": {**_under("_generator.", state), **_under("discriminator.", DISCRIMINATOR)},
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.3)}},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.rand(3)}}, "param_groups": []}],
    },
    "CycleGAN in one module": lambda state: {**_under("genA2B.", state), **_under("disA.", DISCRIMINATOR)},
    "nets under names": lambda state: {"netG": state, "netF": _other(state), "netD_A": DISCRIMINATOR},
    "one net under two names": lambda state: {"netG": state, "best_netG": dict(state), "netD_A": DISCRIMINATOR},
    "nets in a list": lambda state: {"nets": [state, DISCRIMINATOR], "epoch": 3},
    "a tuple": lambda state: (state, 3),
    "ema_pytorch": lambda state: {
        "model": _other(state),
        "ema": {"initted": torch.tensor(1), **_under("online_model.", _other(state)), **_under("ema_model.", state)},
    },
    "BasicSR": lambda state: {"params": _other(state), "params_ema": state},
    "timm": lambda state: {"state_dict": _other(state), "state_dict_ema": state, "args": argparse.Namespace(lr=1)},
    "DeepSpeed": lambda state: {"module": state, "buffer_names": [], "ds_version": "0.14"},
    "mmediting": lambda state: {
        "meta": {"epoch": 1},
        "state_dict": {**_under("generator.", _other(state)), **_under("generator_ema.", state)},
    },
    "profiled by thop": _profiled,
    "parameters": lambda state: {key: nn.Parameter(tensor, requires_grad=False) for key, tensor in state.items()},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["unet", "pconv", "dcgan", "fillnet"])
def test_the_net_comes_back_from_the_form_of_the_project(name, form, make_net, tmp_path):
    net = made(name, make_net)
    torch.save(FORMS[form](dict(net.state_dict())), tmp_path / "net.pth")
    found, again = reread(tmp_path / "net.pth")
    assert found.options == TINY[name][1]
    assert torch.equal(outputs(name, again), outputs(name, net))
    assert not any("callbacks" in note for note in found.notes)


def _tar(names: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in names.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_tar({"ckpt/net.pth": b"x"}), r"a tar archive; unpack it first \(tar -xf\)"),
        (_tar({"sys_info": b"x", "pickle": b"x", "storages": b"x", "tensors": b"x"}), "format of torch before 0.2"),
        (pickle.dumps({"main.0.weight": torch.rand(3).numpy()}), "a pickle of another program, .* make a dictionary"),
    ],
    ids=["tar", "torch 0.1", "pickle"],
)
def test_what_torch_does_not_write_is_named_with_what_to_do(content, message, tmp_path):
    (tmp_path / "net.pth").write_bytes(content)
    with pytest.raises(CheckpointRefused, match=message):
        read_checkpoint(tmp_path / "net.pth")


def test_a_part_of_a_distributed_checkpoint_is_named_with_what_to_do(tmp_path):
    (tmp_path / "__0_0.distcp").write_bytes(b"x" * 100)
    with pytest.raises(CheckpointRefused, match=r"format_utils dcp_to_torch"):
        read_checkpoint(tmp_path / "__0_0.distcp")


def _nested(state: State) -> Tensor:
    return next(iter(state.values()))


def test_a_list_that_holds_itself_is_read_once(make_net, tmp_path: Path):
    state = dict(made("dcgan", make_net).state_dict())
    around: list[object] = [state]
    around.append(around)
    torch.save(around, tmp_path / "net.pth")
    found, _ = reread(tmp_path / "net.pth")
    assert torch.equal(_nested(found.state), _nested(state))
