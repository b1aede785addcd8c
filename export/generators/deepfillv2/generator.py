"""DeepFillv2 behind the tensor contract; see net.py and attention.py.

Contract: image N×3×H×W in [0, 1], mask N×1×H×W with 1 = FILL; output N×3×H×W on the [0, 1] scale, the refined picture.
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from engines.manifest import MultipleSize
from export.errors import LayoutMismatch
from export.generators.deepfillv2.lowered import divide_gates, view_patches
from export.generators.deepfillv2.net import DeepFillV2Net, DeepFillV2Options, layers
from export.generators.family import Bars, Family, Interface, State, Translation, image_tensor

_FIRST = {
    "networks": ("stage1.conv1", "stage2.ca_conv1"),
    "networks_tf": ("conv1", "pmconv1"),
    "csqiangwen": ("coarse.0", "refine_atten_1.0"),
}
_PAIR = "coarse.0.mask_conv2d.weight"
_FUSE_WEIGHT = "stage2.contextual_attention.fuse_weight"


class DeepFillV2Contract(nn.Module):
    """The net behind the tensor contract; soft masks are cut at one half, as upstream does."""

    def __init__(self, net: DeepFillV2Net) -> None:
        super().__init__()
        self.net, self.signed = net, not net.white

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map image and mask of the tensor contract to the output; see the module's docstring."""
        hole = (mask > 0.5).float()
        if not self.signed:
            return cast("Tensor", self.net(image, hole)[1])
        return cast("Tensor", self.net(image * 2 - 1, hole)[1] * 0.5 + 0.5)


def _joined_pairs(state: State) -> State:
    """Join csqiangwen's pairs of convolutions, features and gate, into one each."""
    joined = dict(state)
    for layer in layers():
        name = layer.name("csqiangwen")
        inside = f"{name}.gated_conv2d" if layer.kind == "doubles" else name
        pair = [f"{inside}.{part}" for part in ("conv2d", "mask_conv2d")]
        names = [f"{part}.{tensor}" for part in pair for tensor in ("weight", "bias")]
        if not all(key in joined for key in names):
            continue  # joined already, or incomplete: the strict loader names what is missing
        for tensor in ("weight", "bias"):
            joined[f"{name}.conv.{tensor}"] = torch.cat([joined.pop(f"{part}.{tensor}") for part in pair])
    return joined


class DeepFillV2(Family[DeepFillV2Options]):
    """DeepFillv2 in both layouts of nipponjo/deepfillv2-pytorch, and csqiangwen/DeepFillv2_Pytorch."""

    name = "deepfillv2"
    summary = (
        "DeepFillv2, gated convolutions and contextual attention (Yu et al. 2019), layouts of nipponjo and csqiangwen"
    )
    options = DeepFillV2Options

    def recognise(self, state: State) -> DeepFillV2Options | None:
        """Recognise the first layers of the coarse net and of the branch with attention."""
        if _PAIR in state:
            return DeepFillV2Options(layout="csqiangwen", cnum=state[_PAIR].shape[0])
        for layout, (first, attending) in _FIRST.items():
            if f"{first}.conv.weight" in state and f"{attending}.conv.weight" in state:
                channels = state[f"{first}.conv.weight"].shape[0]
                cnum = channels // 2 if layout == "csqiangwen" else channels
                return DeepFillV2Options.model_validate({"layout": layout, "cnum": cnum})
        return None

    def build(self, options: DeepFillV2Options) -> nn.Module:
        return DeepFillV2Net(options)

    def translate(self, state: State, options: DeepFillV2Options) -> Translation:
        """Join csqiangwen's pairs of convolutions, and check the public constant of the attention.

        Raises:
            LayoutMismatch: scores are fused with weights other than the identity, which the graph assumes.
        """
        weight = state.get(_FUSE_WEIGHT)
        if weight is not None and not torch.equal(weight, torch.eye(3)[None, None]):
            raise LayoutMismatch(f"{_FUSE_WEIGHT} is not the identity of 3×3, as in every public file")
        return Translation(_joined_pairs(state) if options.layout == "csqiangwen" else state)

    def interface(self, options: DeepFillV2Options) -> Interface:  # noqa: ARG002 (all nets of the family have it)
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", 3), image_tensor("mask", 1)),
            output=image_tensor("output", 3),
            size=MultipleSize(multiple_of=8, sides=(256, 512), fit="pad"),
            largest_batch=4,  # attention takes about 0.3 GB for each 512×512
        )

    def bars(self, options: DeepFillV2Options) -> Bars:  # noqa: ARG002 (as above)
        """Allow more deviation: two stages of gated convolutions amplify rounding at single pixels."""
        return Bars(fp32_max_abs=5e-3, fp32_psnr_db=60, fp16_psnr_db=40, fill_levels=1)

    def wrap(self, net: nn.Module, options: DeepFillV2Options) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return DeepFillV2Contract(cast("DeepFillV2Net", net))

    def lower(self, net: nn.Module, options: DeepFillV2Options) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return divide_gates(_copied_contract(net))

    def lower_for_program(self, net: nn.Module, options: DeepFillV2Options) -> nn.Module:  # noqa: ARG002 (as above)
        """Keep gates and features in one convolution, and take patches as views, which a GPU computes faster."""
        return view_patches(_copied_contract(net))


def _copied_contract(net: nn.Module) -> nn.Module:
    return DeepFillV2Contract(copy.deepcopy(cast("DeepFillV2Net", net))).eval()
