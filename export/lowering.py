"""Rewrites a trained FP32 net for a graph: batch norms folded, some layers kept in FP32, the rest converted to FP16.

FP16 is decided here, in the modules, and not by a graph converter afterwards: each FP32 part stands beside the formula
that needs it, the exporter writes it as an explicit Cast, and the graph is strongly typed by construction. TensorRT 10
and later take the types as they are, 8.6 finds the FP32 parts by their tensors, OpenVINO and ONNX Runtime on a CPU
decompress the half weights; none of them chooses a precision.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

ModuleT = TypeVar("ModuleT", bound=nn.Module)
_Convolution: TypeAlias = nn.Conv2d | nn.ConvTranspose2d
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
WEIGHTED = (*_CONVOLUTIONS, nn.Linear)


class InstanceNorm32(nn.Module):
    """An instance norm whose statistics are FP32 whatever the type of the activations.

    The variance of FP16 activations overflows beyond 65504 and loses small values: 1e-5 added to an FP16 variance
    of 1e-8 is not what the net was trained with.

    In a graph it is means, differences and a root, not InstanceNormalization: TensorRT 8.6 has that operator as a cuDNN
    plugin only. OpenVINO recognises the norm in this form. On FP32 activations each mean is taken in two steps, along
    the rows and then over the rows' means. The division by the deviation, at least √1e-5, multiplies errors by up to
    316 on flat areas, and a plain FP32 sum over a whole plane is not exact enough for that. FP16 activations are
    rounded a hundred times more coarsely, so there each mean is one operator.
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape and type."""
        wide = x.float()
        if not torch.onnx.is_in_onnx_export():  # torch and its compiler have the norm as one kernel
            return F.instance_norm(wide, weight=self.weight, bias=self.bias, eps=self.eps).to(x.dtype)
        axes = ((3,), (2,)) if x.dtype == torch.float32 else ((2, 3),)
        centred = wide - _mean_in_two_steps(wide, axes)
        y = centred / torch.sqrt(_mean_in_two_steps(centred * centred, axes) + self.eps)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
        return y.to(x.dtype)


def _mean_in_two_steps(x: Tensor, axes: tuple[tuple[int, ...], ...]) -> Tensor:
    """Average over the first axes, then over the next."""
    for some in axes:
        x = x.mean(some, keepdim=True)
    return x


def _lower_norm(norm: nn.Module, *, batch_statistics: bool) -> nn.Module:
    if isinstance(norm, nn.InstanceNorm2d):
        weight, bias = (norm.weight, norm.bias) if norm.affine else (None, None)
        return InstanceNorm32(_detached_copy(weight), _detached_copy(bias), norm.eps)
    if isinstance(norm, nn.BatchNorm2d) and batch_statistics:
        return InstanceNorm32(_detached_copy(norm.weight), _detached_copy(norm.bias), norm.eps)
    return norm


def _detached_copy(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.detach().clone()


def lower_norms(net: ModuleT, *, batch_statistics: bool = False) -> ModuleT:
    """Copy a net, fold every batch norm into the convolution before it, and compute instance norms in FP32.

    Args:
        net: a net in eval mode whose batch norms follow their convolution in an `nn.Sequential`.
        batch_statistics: normalise with the picture's own statistics instead of the running ones. At batch 1 that is
            exactly what a batch norm in training mode does, which is the public test script's default for pix2pix.
    """
    lowered = copy.deepcopy(net).requires_grad_(requires_grad=False)
    for parent in list(lowered.modules()):
        for name, child in list(parent.named_children()):
            setattr(parent, name, _lower_norm(child, batch_statistics=batch_statistics))
        if isinstance(parent, nn.Sequential):
            _fold_sequence(parent)
    return lowered


def _fold_sequence(sequence: nn.Sequential) -> None:
    names = list(sequence._modules)  # noqa: SLF001 (nn.Sequential has no public way to put a layer under its name)
    for first, second in pairwise(names):
        conv, norm = getattr(sequence, first), getattr(sequence, second)
        if isinstance(conv, _CONVOLUTIONS) and isinstance(norm, nn.BatchNorm2d):
            transposed = isinstance(conv, nn.ConvTranspose2d)
            setattr(sequence, first, fuse_conv_bn_eval(conv, norm, transpose=transposed))
            setattr(sequence, second, nn.Identity())


class _HalfConvolution(torch.autograd.Function):
    """An FP16 convolution that a CPU can compute and the exporter writes as one operator.

    torch has no fast FP16 convolution for most CPUs (47 s instead of 0.3 s for a partial-convolution U-Net at 256²),
    so the FP16 operands are multiplied in FP32 and the result is rounded once, as tensor cores do. In the graph it is
    an ordinary Conv or ConvTranspose on half tensors.
    """

    @staticmethod
    def forward(_ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, conv: _Convolution) -> Tensor:
        wide = None if bias is None else bias.float()
        operation: Any = F.conv2d
        geometry: tuple[Any, ...] = (conv.stride, conv.padding, conv.dilation, conv.groups)
        if isinstance(conv, nn.ConvTranspose2d):
            operation = F.conv_transpose2d
            geometry = (conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation)
        return cast("Tensor", operation(x.float(), weight.float(), wide, *geometry).half())

    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any, bias: Any, conv: _Convolution) -> Any:
        """Write the ONNX operator."""
        attributes: dict[str, Any] = {
            "kernel_shape_i": conv.kernel_size,
            "strides_i": conv.stride,
            "pads_i": [*conv.padding, *conv.padding],
            "dilations_i": conv.dilation,
            "group_i": conv.groups,
        }
        operands = [x, weight] if conv.bias is None else [x, weight, bias]
        if isinstance(conv, nn.ConvTranspose2d):
            return g.op("ConvTranspose", *operands, **attributes, output_padding_i=conv.output_padding)
        return g.op("Conv", *operands, **attributes)


class HalfConv(nn.Module):
    """A convolution with FP16 weights on FP16 activations."""

    def __init__(self, conv: _Convolution) -> None:
        super().__init__()
        self.conv = conv.half()

    def forward(self, x: Tensor) -> Tensor:
        """Map FP16 N×C×H×W to FP16 N×C'×H'×W'."""
        return cast("Tensor", _HalfConvolution.apply(x, self.conv.weight, self.conv.bias, self.conv))  # type: ignore[no-untyped-call]


def to_half(net: ModuleT) -> ModuleT:
    """Copy a net with its convolutions and linear layers in FP16; everything else keeps its type."""
    half = copy.deepcopy(net)
    for parent in list(half.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _CONVOLUTIONS):
                setattr(parent, name, HalfConv(child))
            elif isinstance(child, nn.Linear):
                child.half()
    return half


def compute_type(net: nn.Module) -> torch.dtype:
    """Return the type of the net's activations: that of its first convolution or linear layer."""
    for module in net.modules():
        if isinstance(module, WEIGHTED):
            return module.weight.dtype
    return torch.float32


class TanhScaled(nn.Module):
    """A net on [-1, 1] behind the tensor contract's [0, 1]; the scaling is FP32."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor) -> Tensor:
        """Map N×C×H×W in [0, 1] to N×C'×H×W in [0, 1]."""
        y = self.net((image * 2 - 1).to(compute_type(self.net)))
        return y.float() * 0.5 + 0.5  # type: ignore[no-any-return]  # torch types a module's result as Any
