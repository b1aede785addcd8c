"""One of several nets in a file is chosen by the user, and never by chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from export.checkpoint import digest_of, parts_of, read_checkpoints, sha256_of
from export.errors import OptionInvalid
from export.generators.family import State
from export.recognition import RecognisedNet, recognise
from tests.export.states.tiny_nets import made

Other = Callable[[State], State]


@pytest.fixture
def state(make_net: Callable[..., nn.Module]) -> State:
    return dict(made("dcgan", make_net).state_dict())


def _times(factor: float, state: State) -> State:
    return {key: tensor * factor for key, tensor in state.items()}


def _under(prefix: str, state: State) -> State:
    return {f"{prefix}.{key}": tensor for key, tensor in state.items()}


def _recognised(path: Path, value: object, weights: str | None = None) -> RecognisedNet:
    torch.save(value, path)
    return recognise(parts_of(read_checkpoints([path]), weights), None, {})


def _first(state: State) -> Tensor:
    return state["main.0.weight"]


@pytest.mark.parametrize("weights", ["netG_A", "netG_B"])
def test_either_net_of_a_cyclegan_is_exported_by_its_path(weights, state, tmp_path):
    nets = {"netG_A": state, "netG_B": _times(2, state)}
    found = _recognised(tmp_path / "net.pth", {**nets, "netD_A": {"a": torch.ones(3)}}, weights)
    assert torch.equal(_first(found.state), _first(nets[weights]))
    assert found.notes == (f"used the weights of {weights}",)


@pytest.mark.parametrize(
    ("form", "flags"),
    [
        (lambda a, b: {"netG_A": a, "netG_B": b, "epoch": 3}, "--weights netG_A, --weights netG_B"),
        (
            lambda a, b: {"state_dict": {**_under("netG_A", a), **_under("netG_B", b)}},
            "--weights state_dict/netG_A, --weights state_dict/netG_B",
        ),
        (
            lambda a, b: {"G_A": a, "G_B": b, "G_A_ema": dict(a), "G_B_ema": dict(b)},
            "--weights G_A_ema, --weights G_B_ema",
        ),
        (lambda a, b: [a, b], "--weights 0, --weights 1"),
        (lambda a, b: {"my net": a, "other net": b}, "--weights 'my net', --weights 'other net'"),
        (lambda a, b: {"epoch_1": a, "epoch_2": b}, "--weights epoch_1, --weights epoch_2"),
    ],
    ids=["CycleGAN", "Lightning", "averages", "list", "spaces", "other names"],
)
def test_several_generators_are_listed_with_their_flags(form, flags, state, tmp_path):
    with pytest.raises(
        OptionInvalid, match=f"there are 2 generators to choose from; name one to retouch export: {flags}$"
    ):
        _recognised(tmp_path / "net.pth", form(state, _times(2, state)))


def test_raw_weights_can_be_taken_in_place_of_their_averages(state, tmp_path):
    value = {"generator": state, "ema": {"shadow_params": [2 * state["main.0.weight"]]}, "G_ema": _times(3, state)}
    assert torch.equal(_first(_recognised(tmp_path / "net.pth", value).state), 3 * _first(state))
    assert torch.equal(_first(_recognised(tmp_path / "net.pth", value, "generator").state), _first(state))


def test_a_path_stands_for_what_is_inside_it(state, tmp_path):
    value = {"A": {"netG": state, "netD": {"a": torch.ones(3)}}, "B": {"netG": _times(2, state)}}
    assert torch.equal(_first(_recognised(tmp_path / "net.pth", value, "B").state), 2 * _first(state))


def test_a_path_that_is_not_in_the_file_is_answered_with_those_that_are(state, tmp_path):
    value = {"netG_A": state, "netG_B": _times(2, state), "scores": {"loss": torch.tensor(1.0)}}
    with pytest.raises(OptionInvalid, match=r"--weights netG; the file has --weights netG_A, --weights netG_B$"):
        _recognised(tmp_path / "net.pth", value, "netG")
    with pytest.raises(OptionInvalid, match=r"--weights netG; the file has one state dict, without a path: leave"):
        _recognised(tmp_path / "net.pth", state, "netG")
    with pytest.raises(OptionInvalid, match=r"--weights ''; the file has --weights netG_A"):  # an unset variable
        _recognised(tmp_path / "net.pth", value, "")


def test_the_digest_of_a_model_tells_which_weights_were_chosen(state, tmp_path):
    torch.save({"netG_A": state, "netG_B": _times(2, state)}, tmp_path / "net.pth")
    files = read_checkpoints([tmp_path / "net.pth"])
    digests = [digest_of(files, weights) for weights in (None, "netG_A", "netG_B")]
    assert digests[0] == sha256_of(tmp_path / "net.pth")
    assert len(set(digests)) == 3
