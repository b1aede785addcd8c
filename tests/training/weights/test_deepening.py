"""A deeper FillNet starts from the weights of a shallower one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.options import FillNetOptions
from training.__main__ import app
from training.errors import CheckpointMismatch
from training.nets.fillnet import checkpoint_state, make_net, training_state
from training.weights.deepening import deepen

SHALLOW = FillNetOptions(widths="8,8,8", encoder="0,0,1", decoder="1,0,1")
ATTENTIVE = FillNetOptions(widths="8,8,8", encoder="0,0,1", decoder="1,0,1", context="0,0,2")
DEEP = FillNetOptions(widths="8,8,8", encoder="1,2,3", decoder="2,1,2", context="0,1,4")


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    image = torch.rand(2, 3, 32, 32, generator=random(1))
    return image, (torch.rand(2, 1, 32, 32, generator=random(2)) < 0.5).float()


@pytest.mark.parametrize("options", [SHALLOW, ATTENTIVE], ids=["convolutions", "attention"])
def test_the_deeper_net_fills_nearly_as_the_shallower_one(options: FillNetOptions) -> None:
    shallow = make_net(options, random(3))
    net = FillNet().build(DEEP)
    net.load_state_dict(deepen(checkpoint_state(shallow), options, DEEP, seed=4))
    with torch.no_grad():
        before, after = shallow(*batch()), net(*batch())
        other = make_net(options, random(5))(*batch())
    assert (after - before).abs().mean() < 0.05 * (other - before).abs().mean()
    assert (after - before).abs().max() > 0


def test_every_added_filter_can_learn() -> None:
    net = make_net(DEEP, random(6))
    net.load_state_dict(training_state(deepen(checkpoint_state(make_net(SHALLOW, random(3))), SHALLOW, DEEP, seed=4)))
    net(*batch()).square().mean().backward()
    assert [name for name, value in net.named_parameters() if value.grad is None or not value.grad.any()] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": "8,8,12"}, "widths"),
        ({"encoder": "1,2,0"}, "encoder"),
        ({"decoder": "0,1,2"}, "decoder"),
        ({"context": "0,0,1"}, "context"),
    ],
)
def test_a_net_that_would_lose_layers_is_refused(change: dict[str, str], message: str) -> None:
    smaller = DEEP.model_copy(update=change)
    state = checkpoint_state(make_net(ATTENTIVE, random(3)))
    with pytest.raises(CheckpointMismatch, match=message):
        deepen(state, ATTENTIVE, smaller, seed=4)


def write_config(folder: Path, model: str = "fillnet") -> Path:
    path = folder / "deep.toml"
    generator = "\n".join(f'{name} = "{getattr(DEEP, name)}"' for name in ("widths", "encoder", "decoder", "context"))
    path.write_text(
        f'model = "{model}"\noutput = "out"\nprecision = "fp32"\n[data]\npath = "photos"\nlayout = "folder"\n'
        f"crop = 32\nload_side = 32\n[generator]\n{generator}\n[shares]\nperceptual = 0\n[[phase]]\nsteps = 1\n"
        "batch = 1\nlearning_rate = 1e-3\n"
    )
    return path


def test_the_command_writes_a_net_that_is_recognised(tmp_path: Path) -> None:
    torch.save(checkpoint_state(make_net(SHALLOW, random(3))), tmp_path / "shallow.pth")
    arguments = ["deepen", str(write_config(tmp_path)), str(tmp_path / "shallow.pth"), "-o", str(tmp_path / "deep.pth")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    written = torch.load(tmp_path / "deep.pth", weights_only=True)
    assert FillNet().recognise(written) == DEEP
    assert {tensor.dtype for tensor in written.values()} == {torch.float16}


def test_a_file_without_a_fillnet_is_named(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "other.pth")
    arguments = ["deepen", str(write_config(tmp_path)), str(tmp_path / "other.pth"), "-o", str(tmp_path / "deep.pth")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "other.pth: holds no FillNet" in result.output
