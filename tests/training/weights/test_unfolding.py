"""An exported graph becomes a net with the same outputs and batch norms that can be trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from export.generators.fillnet.options import FillNetOptions
from export.pipeline import ExportRequest, export_model
from training.__main__ import app
from training.config import PConvConfig, load_config
from training.data.hole_masks import draw_shapes, fill_shapes
from training.errors import CheckpointMismatch
from training.loop.checkpoints import save_generator
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.nets.fillnet import checkpoint_state as fillnet_checkpoint
from training.nets.fillnet import make_net
from training.nets.partial_conv import PartialUNet, checkpoint_state, initialise, training_state
from training.tasks.partial_conv import PartialTrainee
from training.weights.initial import load_initial
from training.weights.unfolding import unfold, unfold_fillnet

Config = Callable[..., PConvConfig]
Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture
def batch() -> Batch:
    random = torch.Generator().manual_seed(4)
    return torch.rand(3, 3, 32, 32, generator=random), fill_shapes(draw_shapes(3, (0.2, 0.5), random), 32)


@pytest.fixture
def model(partial_config: Config, photographs: Path, batch: Batch, tmp_path: Path) -> Path:
    """Export in FP32 a net whose batch norms, shifts and bias all matter."""
    net, random = PartialUNet(partial_config().generator), torch.Generator().manual_seed(5)
    initialise(net, random)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.bias.normal_(0, 0.3, generator=random)
        net.get_parameter("dec_1.conv.input_conv.bias").normal_(0, 0.3, generator=random)
        net.get_parameter("dec_1.conv.input_conv.weight").mul_(0.1)  # keeps an untrained net near pictures
        for _ in range(30):
            net(*batch)
    path = save_generator(tmp_path, "net", checkpoint_state(net), half=False)
    return export_model(
        ExportRequest((path,), "tiny", photographs, precision="fp32", output=tmp_path / "models"), lambda _: None
    ).directory


def test_the_net_computes_what_the_graph_does(
    model: Path, partial_config: Config, batch: Batch, tmp_path: Path
) -> None:
    original = PartialUNet(partial_config().generator)
    load_initial(original, tmp_path / "net.pth", training_state)
    unfolded = unfold(model, partial_config(), crops=14)
    with torch.no_grad():
        wanted, found = original.eval()(*batch), unfolded(*batch)
    assert (found - wanted).abs().max() < 1e-4
    assert wanted.std() > 0.01


def test_batch_norms_hold_the_statistics_of_training_crops(model: Path, partial_config: Config) -> None:
    config = partial_config()
    net = unfold(model, config, crops=24)
    norm = net.get_submodule("enc_2.bn")
    assert isinstance(norm, torch.nn.BatchNorm2d)
    seen: list[torch.Tensor] = []
    norm.register_forward_hook(lambda _norm, inputs, _output: seen.append(inputs[0]))
    trainee = PartialTrainee(config, Runtime(torch.device("cpu"), "fp32"))
    with torch.no_grad():
        for step in range(12):
            net(*trainee.batch(step, position_of_step(step % 4, config.phase)))
    exact = torch.cat(seen)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    spread = exact.std((0, 2, 3))
    assert ((norm.running_mean - exact.mean((0, 2, 3))).abs() < 0.5 * spread).all()
    assert ((norm.running_var.sqrt() / spread - 1).abs() < 0.5).all()


def test_a_run_can_begin_with_what_the_command_writes(
    model: Path,
    partial_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    tmp_path: Path,
) -> None:
    config = write_config(partial_run(), tmp_path / "run.toml")
    output = tmp_path / "start" / "tiny.pth"
    result = CliRunner().invoke(app, ["unfold", str(config), str(model), "-o", str(output), "--crops", "4"])
    assert result.exit_code == 0, result.output
    net = PartialUNet(load_config(config).generator)  # type: ignore[arg-type]  # a partial-convolution run's
    load_initial(net, output, training_state)
    kernel = net.get_parameter("enc_2.conv.input_conv.weight").flatten(1).norm(dim=1)
    assert torch.allclose(kernel, torch.full_like(kernel, 8**0.5), rtol=1e-3)


def test_a_graph_of_another_net_is_refused(model: Path, partial_config: Config, tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatch, match="levels"):
        unfold(model, partial_config(generator={"levels": 4, "width": 4}), crops=2)
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointMismatch, match="no"):
        unfold(tmp_path, partial_config(), crops=2)


def test_the_graph_of_fillnet_holds_the_weights_of_the_net(
    model: Path,
    photographs: Path,
    fill_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    tmp_path: Path,
) -> None:
    options = FillNetOptions(widths="8,8", encoder="1,0", decoder="0,1", context="0,1")
    state = fillnet_checkpoint(make_net(options, torch.Generator().manual_seed(0)))
    path = save_generator(tmp_path, "net", state, half=True)
    request = ExportRequest((path,), "tiny", photographs, output=tmp_path / "models")
    graph = export_model(request, lambda _: None).directory
    goes_on = write_config(
        fill_run(generator={"widths": "8,8", "encoder": "1,0", "decoder": "0,1", "context": "0,1"}),
        tmp_path / "run.toml",
    )
    result = CliRunner().invoke(app, ["unfold", str(goes_on), str(graph), "-o", str(tmp_path / "start.pth")])
    assert result.exit_code == 0, result.output
    found = torch.load(tmp_path / "start.pth", weights_only=True)
    assert set(found) == set(state)
    assert all(torch.equal(found[key], tensor.half()) for key, tensor in state.items())
    with pytest.raises(CheckpointMismatch, match="not the layers of a FillNet"):
        unfold_fillnet(model)


@pytest.mark.parametrize("kind", ["nothing", "a checkpoint"])
def test_a_path_without_a_model_is_distinguished_from_a_damaged_graph(kind, tmp_path):
    path = tmp_path / "generator.pth"
    if kind == "a checkpoint":
        torch.save({"weight": torch.zeros(1)}, path)
    with pytest.raises(CheckpointMismatch, match=r"generator\.pth: no model is there; give models/NAME/VERSION"):
        unfold_fillnet(path)
