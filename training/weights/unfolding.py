"""Converts an exported graph of FillNet or of a partial-convolution net back into weights for training.

FillNet's graph has the net's own names and weights. In the graph of a partial-convolution net the batch norms are
folded into the convolutions. Each batch norm is restored with statistics of training crops and with weights that undo
their effect, so the net computes the same as the graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError  # a dependency of onnx
from onnx import numpy_helper
from torch import Tensor, nn

from engines.manifest import ONNX_FILE
from export.generators.family import State
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.net import FillUNet
from training.config import PConvConfig
from training.data.cuts import draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.hole_masks import draw_shapes, fill_shapes
from training.data.pictures import load_pictures
from training.errors import CheckpointMismatch
from training.nets.partial_conv import PartialLayer, PartialUNet
from training.seeds import Purpose, generator_for

_ROW_LENGTH = 2 * 2**0.5
"""Norm of each kernel, about twice He's. The batch norm cancels it, but it sets the relative size of Adam's steps."""
_BATCH = 12


class FoldedLayer(NamedTuple):
    """A layer's tensors in the graph, FP32."""

    weight: Tensor
    shift: Tensor
    """Added everywhere: the part of the batch norm that is not folded into the weight."""
    bias: Tensor
    """Added where the window holds a valid pixel; 0 without one."""


def unfold(model: Path, config: PConvConfig, crops: int = 192) -> PartialUNet:
    """Convert models/NAME/VERSION into a net, with batch norms measured on `crops` crops of the config's pictures.

    Raises:
        CheckpointMismatch: the graph is not that of the config's generator.
        DataMissing: the config's pictures cannot be read.
    """
    layers = _folded_layers(model / ONNX_FILE)
    net = PartialUNet(config.generator)
    names = [name for name, _ in net.named_children() if name != "scale"]
    measured = {name: _load_folded_layer(net.get_submodule(name), layers, name) for name in names}
    device = torch.device("cpu")
    limit = min(config.data.limit or crops, crops)
    cache = PictureCache(load_pictures(config.data.model_copy(update={"limit": limit})), device)
    random = generator_for(device, config.seed, 0, Purpose.CROPS)
    with torch.no_grad():
        for first in range(0, crops, _BATCH):
            count = min(_BATCH, crops - first)
            numbers = picture_numbers(cache.count, first, count, config.seed, device)
            image = cache.crops(draw_crops(config.data, numbers, random), config.data.crop)
            net(image, fill_shapes(draw_shapes(count, config.masks.coverage, random), config.data.crop))
        for name, found in measured.items():
            if found is not None:
                cast("PartialLayer", net.get_submodule(name)).bn = found.equivalent_batch_norm()
    return net.eval()


def unfold_fillnet(model: Path) -> State:
    """Return the weights of models/NAME/VERSION, a net without norms, in FP32.

    Raises:
        CheckpointMismatch: the graph is not FillNet's.
    """
    found = {}
    for tensor in _read_graph(model / ONNX_FILE).initializer:
        name = tensor.name.removeprefix("net.").replace(".conv.", ".")  # the exporter's wrapper of each convolution
        if name != tensor.name:
            found[name] = _to_tensor(numpy_helper.to_array(tensor))
    options = FillNet().recognise(found)
    wanted = FillUNet(options).state_dict() if options else {}
    if not wanted or {key: tensor.shape for key, tensor in found.items()} != {
        key: tensor.shape for key, tensor in wanted.items()
    }:
        raise CheckpointMismatch(f"{model}: the graph has not the layers of a FillNet; give the model of one")
    return found


class _StatisticsProbe(nn.Module):
    """A replacement for a batch norm that computes the same as the graph and accumulates statistics of its input."""

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self._scale, self._shift, self._count = scale, shift, 0
        self._sums = torch.zeros(2, len(scale), dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        exact = x.double()
        self._sums += torch.stack([exact.sum((0, 2, 3)), exact.square().sum((0, 2, 3))])
        self._count += x.numel() // x.shape[1]
        return x / self._scale.view(1, -1, 1, 1) + self._shift.view(1, -1, 1, 1)

    def equivalent_batch_norm(self) -> nn.BatchNorm2d:
        """Return the batch norm with the accumulated statistics that computes the same in eval mode."""
        mean, squares = self._sums / self._count
        variance = (squares - mean.square()).clamp(min=0)
        norm = nn.BatchNorm2d(len(mean))
        cast("Tensor", norm.running_mean).copy_(mean)
        cast("Tensor", norm.running_var).copy_(variance)
        norm.weight.copy_((variance + norm.eps).sqrt() / self._scale)
        norm.bias.copy_(mean / self._scale + self._shift)
        return norm


def _load_folded_layer(layer: nn.Module, layers: dict[str, FoldedLayer], name: str) -> _StatisticsProbe | None:
    """Load the graph's weights into a layer; returns the replacement for its batch norm, or None if it has none."""
    block, folded = cast("PartialLayer", layer), layers.get(name)
    conv = block.conv.input_conv
    if folded is None or folded.weight.shape != conv.weight.shape:
        raise CheckpointMismatch(f"the graph has no layer {name} of the config's shape; compare its levels and widths")
    if block.bn is None:
        conv.weight.data.copy_(folded.weight)
        if conv.bias is not None:
            conv.bias.data.copy_(folded.bias + folded.shift)
        return None
    scale = _ROW_LENGTH / folded.weight.flatten(1).norm(dim=1).clamp(min=1e-8)
    conv.weight.data.copy_(folded.weight * scale.view(-1, 1, 1, 1))
    measured = _StatisticsProbe(scale, folded.shift)
    block.bn = cast("Any", measured)
    return measured


def _folded_layers(path: Path) -> dict[str, FoldedLayer]:
    """Read the weights of every layer, by the layer's name: the prefix of the names of its tensors in the graph."""
    graph = _read_graph(path)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    gated = {
        node.output[0]: node.input[0] for node in graph.node if node.op_type == "Mul" and node.input[0] in constants
    }
    added = [(node.output[0], name) for node in graph.node if node.op_type == "Add" for name in node.input]
    layers = {}
    for conv in (node for node in graph.node if node.op_type == "Conv" and node.input[1] in constants):
        weight, name = _to_tensor(constants[conv.input[1]]), conv.output[0].split("/")[1]
        zero, own = torch.zeros(weight.shape[0]), [what for where, what in added if where.startswith(f"/{name}/Add")]
        shift = [_to_tensor(constants[what]).flatten() for what in own if what in constants]
        bias = [_to_tensor(constants[gated[what]]).flatten() for what in own if what in gated]
        layers[name] = FoldedLayer(weight, sum(shift, zero), sum(bias, zero))
    return layers


def _read_graph(path: Path) -> onnx.GraphProto:
    try:
        return onnx.load(path).graph
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointMismatch(f"{path.parent}: no model is there; give models/NAME/VERSION") from error
    except (OSError, ValueError, DecodeError) as error:
        raise CheckpointMismatch(f"{path}: not a graph that can be read ({error})") from error


def _to_tensor(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, np.float32))
