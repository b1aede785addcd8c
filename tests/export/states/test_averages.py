"""Averaged weights that were saved without names, buffers or dots get them from the net in the same file or another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from export.checkpoint import read_checkpoint, read_checkpoints
from export.errors import CheckpointRefused
from export.generators.family import State
from export.recognition import notes_on_files, recognise
from export.states.averages import completed, in_order, named_averages
from export.states.finding import StateDict, UnnamedTensors
from tests.export.states.tiny_nets import TINY, made, outputs, reread


def _averaged(net: nn.Module) -> dict[str, Tensor]:
    """Return other weights of the net's parameters, by name."""
    return {name: parameter * 0.9 for name, parameter in net.named_parameters()}


def _wanted(net: nn.Module) -> State:
    return {**net.state_dict(), **_averaged(net)}


def _as_torch_ema(net: nn.Module) -> dict[str, object]:
    return {"decay": 0.99, "num_updates": 3, "shadow_params": [*_averaged(net).values()], "collected_params": None}


@pytest.mark.parametrize("name", ["unet", "resnet", "dcgan", "lama", "pgn", "deepfillv2_tf", "global"])
def test_a_list_of_averages_is_used_in_the_order_of_the_nets_parameters(name, make_net, tmp_path):
    net = made(name, make_net)
    torch.save({"netG": net.state_dict(), "ema": _as_torch_ema(net)}, tmp_path / "net.pth")
    found, again = reread(tmp_path / "net.pth")
    assert found.options == TINY[name][1]
    assert found.notes == ("used the weights of ema/shadow_params", "left out: netG")
    net.load_state_dict(_wanted(net))
    assert torch.equal(outputs(name, again), outputs(name, net))


def test_parameters_that_are_not_trained_need_not_be_in_the_list(make_net, tmp_path):
    net = made("pconv", make_net)
    averages = [tensor for key, tensor in _averaged(net).items() if "mask_conv" not in key]
    torch.save({"model": net.state_dict(), "ema": {"shadow_params": averages}}, tmp_path / "net.pth")
    state = reread(tmp_path / "net.pth")[0].state
    wanted = {key: net.state_dict()[key] if "mask_conv" in key else tensor for key, tensor in _wanted(net).items()}
    assert all(torch.equal(state[key], wanted[key]) for key in wanted)


def test_a_list_in_a_file_of_its_own_is_used_with_the_file_of_the_net(make_net, tmp_path):
    net = made("dcgan", make_net)
    torch.save({"netG": net.state_dict(), "netD": {"main.0.weight": torch.rand(4, 3, 4, 4)}}, tmp_path / "net.pth")
    torch.save(_as_torch_ema(net), tmp_path / "ema.pth")
    files = read_checkpoints([tmp_path / "net.pth", tmp_path / "ema.pth"])
    found = recognise([part for file in files for part in file.parts], None, {})
    assert all(torch.equal(found.state[key], tensor) for key, tensor in _wanted(net).items())
    assert notes_on_files(found, {file.path: file.parts for file in files}) == ()
    with pytest.raises(CheckpointRefused, match=r"averaged weights without names \(shadow_params, .* export NET\.pth"):
        read_checkpoint(tmp_path / "ema.pth")


def _without_last(averages: list[Tensor]) -> list[Tensor]:
    return averages[:-1]


@pytest.mark.parametrize("change", [_without_last, lambda averages: averages[::-1], lambda averages: averages * 2])
def test_a_list_that_fits_no_net_is_passed_over_and_it_is_said(change, make_net, tmp_path):
    net = made("resnet", make_net)
    averages = change([*_averaged(net).values()])
    torch.save({"model": net.state_dict(), "ema": {"shadow_params": averages}}, tmp_path / "net.pth")
    checkpoint = read_checkpoint(tmp_path / "net.pth")
    assert all(part.path.startswith("model") for part in checkpoint.parts)
    (note,) = checkpoint.notes()
    assert note.startswith(f"passed over ema/shadow_params of {tmp_path / 'net.pth'}: averaged weights without names")


def _named(state: State, *shapes: tuple[int, ...]) -> State | None:
    averages = UnnamedTensors("ema", tuple(torch.zeros(shape) for shape in shapes))
    part = named_averages(averages, [in_order(StateDict("model", state))])
    return None if part is None else part.state


def test_nothing_is_guessed_where_the_order_is_not_known_or_another_net_fits() -> None:
    two = {"b.weight": torch.rand(2, 2), "b.bias": torch.rand(2), "a.weight": torch.rand(2, 2)}
    assert _named(two, (2, 2), (2,), (2, 2)) is not None
    assert _named(dict(sorted(two.items())), (2, 2), (2,), (2, 2)) is None  # as safetensors, sorted by name
    nets = [StateDict(name, {key: tensor.clone() for key, tensor in two.items()}) for name in ("G_A", "G_B")]
    averages = UnnamedTensors("ema", (torch.zeros(2, 2), torch.zeros(2), torch.zeros(2, 2)))
    assert named_averages(averages, map(in_order, nets)) is None


def test_a_tied_weight_is_averaged_under_both_names() -> None:
    tied = torch.rand(3, 2)
    state = {"b.weight": tied, "a.weight": torch.rand(4, 2), "out.weight": tied.clone(), "out.bias": torch.rand(5)}
    named = _named(state, (3, 2), (4, 2), (5,))
    assert named is not None
    assert not any(tensor.any() for tensor in named.values())


class _CountedReads(dict[str, Tensor]):
    """A state that counts how often a tensor is read."""

    reads = 0

    def __getitem__(self, key: str) -> Tensor:
        self.reads += 1
        return super().__getitem__(key)


def test_tied_weights_are_found_without_comparing_each_with_all_others() -> None:
    state = _CountedReads({f"{number}.weight": torch.tensor([[0.0, number]]) for number in reversed(range(200))})
    state["0.empty"] = torch.empty(0, 2)
    assert _named(state, *[(1, 2)] * 200, (0, 2)) is not None
    assert state.reads < 20 * len(state)


def test_averages_of_parameters_alone_get_the_buffers_of_the_net(make_net, tmp_path):
    net = made("unet", make_net)
    torch.save({"model": net.state_dict(), "ema": {"decay": 0.9, "shadow": _averaged(net)}}, tmp_path / "net.pth")
    found, again = reread(tmp_path / "net.pth")
    assert found.notes[0] == "used the weights of ema/shadow"
    net.load_state_dict(_wanted(net))
    assert torch.equal(outputs("unet", again), outputs("unet", net))


def test_averages_whose_names_have_no_dots_get_those_of_the_net(make_net, tmp_path):
    net = made("unet", make_net)
    flat = {f"netG.{key}": tensor for key, tensor in net.state_dict().items()}
    flat |= {f"netG_ema.{key.replace('.', '')}": tensor for key, tensor in _averaged(net).items()}
    flat |= {"netG_ema.decay": torch.tensor(0.9), "netG_ema.num_updates": torch.tensor(4)}
    torch.save({"state_dict": flat}, tmp_path / "last.ckpt")
    found = reread(tmp_path / "last.ckpt")[0]
    assert found.notes == ("used the weights of state_dict/netG_ema", "left out: state_dict/netG")
    assert all(torch.equal(found.state[key], tensor) for key, tensor in _wanted(net).items())


def test_averages_are_completed_by_the_net_that_they_are_named_after(tmp_path: Path) -> None:
    nets = [StateDict(name, {"w": torch.rand(2), "running_mean": torch.rand(2)}) for name in ("G_A", "G_B")]
    averages = StateDict("G_B_ema", {"w": torch.zeros(2)})
    *_, part = completed([*nets, averages])
    assert torch.equal(part.state["running_mean"], nets[1].state["running_mean"])
    unknown = StateDict("ema", {"w": torch.zeros(2)})
    assert completed([*nets, unknown])[-1] is unknown


@pytest.mark.parametrize("counter", ["steps", "n_averaged", "step"])
def test_numbers_beside_averages_are_no_weights(counter, make_net, tmp_path):
    net = made("dcgan", make_net)
    ema = {counter: torch.tensor(7), **{f"module.{key}": tensor for key, tensor in _wanted(net).items()}}
    torch.save({"state_dict": net.state_dict(), "ema_state_dict": ema}, tmp_path / "net.pth")
    assert all(torch.equal(reread(tmp_path / "net.pth")[0].state[key], t) for key, t in _wanted(net).items())
