"""PD-GAN's nets for training, under the public keys; parts that half precision would break are FP32.

The public partial convolution divides by the count of valid values, this one by the valid fraction of the window, so a
public weight is `window` times the weight here (as in training/nets/partial_conv.py). The weights of mask convolutions
are 1; the public code overwrites them with random ones by mistake. A spectral norm is found by one
power iteration a call, in FP32: in FP16 products of small weights underflow. Both tanh and the attention's sigmoid are
FP32, because they have no gradient where they round to 1.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.family import State
from export.generators.pdgan.diverse import SPDNormBlock, SpectralConv2d
from export.generators.pdgan.fill_prior import FillPrior
from export.generators.pdgan.generator import FILL, PDGAN, PDGANNet, PDGANOptions
from export.partial_conv import PartialConv2d
from training.nets import fillnet

_STD = 0.02
_MIN_NORM = 1e-12
_PARTS = ("prior.EN.", "prior.DE.", "PDGAN.")
_FILL_HOME = "prior.net."
"""Prefix of FillNet's keys in the nets."""
_WEIGHT = ".input_conv.weight"


class TrainedPartialConv(nn.Module):
    """A partial convolution without bias that counts one mask channel, in FP32."""

    def __init__(self, replaced: PartialConv2d) -> None:
        super().__init__()
        self.input_conv, self.mask_conv = replaced.input_conv, replaced.mask_conv
        _fix_at_one(self.mask_conv)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and an FP32 mask, whose channels are equal, to the layer's features and mask."""
        conv = self.input_conv
        kernel, stride, padding = conv.kernel_size[0], conv.stride[0], cast("int", conv.padding[0])
        part = F.avg_pool2d(mask[:, :1], kernel, stride, padding)
        ratio = torch.where(part > 0, 1 / part.clamp(min=1e-6), 0.0)
        y = F.conv2d(x * mask, conv.weight, None, stride, padding) * ratio
        return y, (part > 0).float().expand(-1, conv.out_channels, -1, -1)


class TrainedSpectralConv(SpectralConv2d):
    """A convolution whose weight is divided by its largest singular value, in FP32 also under autocast."""

    def weight(self) -> Tensor:
        """Return the normalised weight; in training mode the vectors of this power iteration are stored."""
        with torch.autocast(self.weight_orig.device.type, enabled=False):
            u, v = self.singular_vectors()
            if self.training:
                self.weight_u.copy_(u)
                self.weight_v.copy_(v)
            norm = torch.dot(u, self.weight_orig.flatten(1) @ v)
            return self.weight_orig / norm.clamp(min=_MIN_NORM)

    @torch.no_grad()
    def singular_vectors(self) -> tuple[Tensor, Tensor]:
        """Return u and v after one more iteration."""
        matrix = self.weight_orig.flatten(1)
        v = F.normalize(matrix.t() @ self.weight_u, dim=0)
        return F.normalize(matrix @ v, dim=0), v


def build_nets(options: PDGANOptions, generator: torch.Generator) -> PDGANNet:
    """Build stage 1 and, if there is one, the generator, with random weights: N(0, 0.02), biases 0, as upstream."""
    nets = PDGANNet(options)
    for module in list(nets.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, PartialConv2d):
                module.add_module(name, TrainedPartialConv(child))
            elif isinstance(child, SpectralConv2d):
                out, into, kernel, _ = child.weight_orig.shape
                module.add_module(name, TrainedSpectralConv(into, out, kernel, bias=child.bias is not None))
    _initialise(nets, generator)
    if options.fill:
        cast("FillPrior", nets.prior).net = fillnet.make_net(options.fill, generator)
    else:
        nets.prior.get_submodule("DE.Decoder_6.model.1").register_forward_hook(_as_fp32)
    if nets.PDGAN is not None:
        nets.PDGAN.conv_img.register_forward_hook(_as_fp32)
        for unit in nets.PDGAN.generated:
            block = cast("SPDNormBlock", unit.block)
            block.attention[0].register_forward_hook(_as_fp32)
            _fix_at_one(cast("nn.Conv2d", block.get_submodule("mask_conv.mask_conv")))
            block.v.requires_grad = False
    return nets


def _fix_at_one(counting: nn.Conv2d) -> None:
    nn.init.ones_(counting.weight)
    counting.requires_grad_(requires_grad=False)


def _as_fp32(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output.float()


def _initialise(nets: nn.Module, generator: torch.Generator) -> None:
    for module in nets.modules():
        if isinstance(module, TrainedSpectralConv):
            nn.init.normal_(module.weight_orig, 0.0, _STD, generator=generator)
            module.weight_u.copy_(F.normalize(torch.randn(module.weight_u.shape, generator=generator), dim=0))
            module.weight_v.copy_(module.singular_vectors()[1])
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)) and module.weight.requires_grad:
            nn.init.normal_(module.weight, 0.0, _STD, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def checkpoint_state(nets: PDGANNet) -> State:
    """Return all nets' weights under the public keys and in the public scale, as `export` recognises them."""
    tensors, fill = dict(nets.state_dict()), {}
    if isinstance(nets.prior, FillPrior):
        fill = {f"{FILL}{key}": tensor for key, tensor in fillnet.checkpoint_state(nets.prior.net).items()}
        tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith(_FILL_HOME)}
    for name, module in nets.named_modules():
        if isinstance(module, TrainedSpectralConv):  # u and v of the forward pass in eval mode
            tensors[f"{name}.weight_u"], tensors[f"{name}.weight_v"] = module.singular_vectors()
    return fill | {key.removeprefix(_part(key)): tensor * _window(key, tensor) for key, tensor in tensors.items()}


def training_state(state: State, options: PDGANOptions) -> State:
    """Convert public weights to the keys and the scale of the nets in this file."""
    found = PDGAN().translate(state, options).state
    fill = {key.removeprefix(_FILL_HOME): found[key] for key in found if key.startswith(_FILL_HOME)}
    own = {f"{_FILL_HOME}{key}": tensor for key, tensor in fillnet.training_state(fill).items()}
    return {key: tensor / _window(key, tensor) for key, tensor in found.items()} | own


def _part(key: str) -> str:
    return next(part for part in _PARTS if key.startswith(part))


def _window(key: str, tensor: Tensor) -> int:
    """Return the number of weights in a window of a partial convolution; 1 for other tensors."""
    return tensor[0].numel() if key.endswith(_WEIGHT) else 1
