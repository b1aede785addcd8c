"""LaMa generators with Fourier convolutions, layout of advimman/lama (`model.1.ffc.convl2l.weight`).

Net:      image N×3×H×W in [0, 1], mask N×1×H×W with 1 = hole; the hole is blackened, and image and mask go in as four
          channels. Output N×3×H×W on [0, 1]; height and width multiples of 8.
Contract: the same. Upstream's composite, mask·output + (1 - mask)·image, is left to the service.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engines.manifest import MultipleSize
from export.errors import LayoutMismatch, OptionInvalid
from export.generators.family import Bars, Family, Interface, State, Translation, image_tensor
from export.generators.lama.lowered import LoweredLaMa
from export.generators.lama.net import LaMaNet, LaMaOptions, output_activation
from export.generators.lama.split import SplitLaMa, fits

_FIRST = re.compile(r"(?:^|.*\.)1\.ffc\.convl2l\.weight")
_INPUT_CHANNELS = 4
_REFUSED = {
    r"(^|\.)(rel_pos_emb|direct_emb|alpha[56])\b": "position embeddings (MPE), which change the function",
    r"\.se\.": "squeeze-and-excitation in its Fourier units",
    r"ffc\.gate\b": "gated Fourier convolutions",
    r"^model\.\d+\.impl\.": "learned rotations of its features (spatial transforms)",
}
_ACTIVATIONS = ("sigmoid", "tanh", "none")
_CONFIRMED_DB = 15.0
"""PSNR in dB of known pixels that trained nets reach, and do not reach with a wrong activation."""
_CLEARLY_DB = 3.0


def _generator_keys(state: State) -> tuple[str, State] | None:
    """Return the prefix of the generator's keys and its tensors by the public names; None if there is none."""
    firsts = [key for key in state if _FIRST.fullmatch(key)]
    if not firsts:
        return None
    prefix = min(firsts, key=len).removesuffix("1.ffc.convl2l.weight")
    return prefix, {
        f"model.{key.removeprefix(prefix)}": tensor for key, tensor in state.items() if key.startswith(prefix)
    }


class LaMa(Family[LaMaOptions]):
    """LaMa inpainting nets of Fourier convolutions."""

    name = "lama"
    summary = "LaMa (Suvorov et al. 2022), FFC generators of advimman/lama"
    options = LaMaOptions

    def recognise(self, state: State) -> LaMaOptions | None:
        """Recognise `model.1.ffc.convl2l.weight` under any prefix; shapes give all options but the output's activation.

        Raises:
            LayoutMismatch: the net has upstream's layers, but in a configuration that was never published.
        """
        found = _generator_keys(state)
        if found is None:
            return None
        keys = found[1]
        downs = sum(re.fullmatch(r"model\.\d+\.ffc\.convl2l\.weight", key) is not None for key in keys) - 1
        blocks = [
            int(match[1]) for key in keys if (match := re.fullmatch(r"model\.(\d+)\.conv2\.ffc\.convl2l\.weight", key))
        ]
        inner = [number for number in blocks if number <= downs + 1 + len(blocks)]
        outer = [number for number in blocks if number not in inner]
        _refuse_other_layouts(keys, downs)
        if sorted(inner) != [*range(2 + downs, 2 + downs + max(1, len(inner)))] or len(outer) > 1:
            raise LayoutMismatch(f"a LaMa net without its block model.{2 + downs}, or with others at odd places")
        split, rest = (keys[f"model.{1 + downs}.ffc.conv{part}.weight"].shape[0] for part in ("l2g", "l2l"))
        return LaMaOptions(
            ngf=keys["model.1.ffc.convl2l.weight"].shape[0],
            downsamplings=downs,
            blocks=len(inner),
            ratio=split / (split + rest),
            lfu=_has_tiles(keys, inner[0]),
            out_ratio=_ratio(keys, outer[0]) if outer else 0,
            out_lfu=_has_tiles(keys, outer[0]) if outer else False,
        )

    def join(self, states: Sequence[State]) -> State | None:
        """Join nothing; refuse a generator if another state holds, for instance, the position embeddings it needs.

        Raises:
            LayoutMismatch: a state has parts that change what the generator computes.
        """
        if any(_generator_keys(state) for state in states):
            for state in states:
                _refuse_other_functions(state)
        return None

    def build(self, options: LaMaOptions) -> nn.Module:
        return LaMaNet(options)

    def translate(self, state: State, options: LaMaOptions) -> Translation:  # noqa: ARG002 (the keys say all)
        """Take the generator's keys out of a whole training state; refuse variants that compute another function.

        Raises:
            LayoutMismatch: the file has parts that change what the generator computes.
        """
        _refuse_other_functions(state)
        found = _generator_keys(state)
        if found is None:
            return Translation(state)
        prefix, keys = found
        others = [key for key in state if not key.startswith(prefix)]
        return Translation(keys, dropped=dict.fromkeys(others, "not of the generator"))

    def bars(self, options: LaMaOptions) -> Bars:  # noqa: ARG002 (all nets of the family have them)
        return Bars(fill_levels=1)

    def interface(self, options: LaMaOptions) -> Interface:
        multiple = options.multiple
        sides = tuple(sorted({-(-side // multiple) * multiple for side in (256, 512)}))
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", 3), image_tensor("mask", 1)),
            output=image_tensor("output", 3),
            size=MultipleSize(multiple_of=multiple, sides=sides, fit="pad", padding="symmetric"),
        )

    def examine(
        self, net: nn.Module, options: LaMaOptions, feeds: Sequence[Mapping[str, NDArray[Any]]]
    ) -> Sequence[str]:
        """Check the output's activation: these nets were trained to reproduce the known pixels.

        Raises:
            OptionInvalid: another activation reproduces the known pixels clearly better.
        """
        decibels = _known_pixels_db(cast("LaMaNet", net), feeds)
        own, best = decibels[options.output], max(_ACTIVATIONS, key=lambda name: decibels[name])
        if decibels[best] >= max(_CONFIRMED_DB, own + _CLEARLY_DB):
            raise OptionInvalid(
                f"lama: with output={options.output} known pixels come back at {own:.1f} dB, with {best} at "
                f"{decibels[best]:.1f} dB: add --option output={best}"
            )
        if own >= _CONFIRMED_DB:
            return (f"known pixels come back at {own:.1f} dB with output={options.output}",)
        doubt = f"known pixels come back at {own:.1f} dB only, so output={options.output} could not be confirmed: "
        return (f"{doubt}compare it with add_out_act of the training's configuration, and look at a fill",)

    def wrap(self, net: nn.Module, options: LaMaOptions) -> nn.Module:
        cast("LaMaNet", net).output = options.output
        return net

    def lower(self, net: nn.Module, options: LaMaOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return LoweredLaMa(cast("LaMaNet", net)).requires_grad_(requires_grad=False).eval()

    def lower_for_program(self, net: nn.Module, options: LaMaOptions) -> nn.Module:
        """Split local and global features, which a GPU computes faster (ADR 55), if the net `fits`."""
        if not fits(options):
            return self.lower(net, options)
        return SplitLaMa(cast("LaMaNet", net)).requires_grad_(requires_grad=False).eval()


def _refuse_other_functions(state: State) -> None:
    for pattern, what in _REFUSED.items():
        if (key := next((key for key in state if re.search(pattern, key)), None)) is not None:
            raise LayoutMismatch(f"this net has {what} ({key}); only plain LaMa generators are supported")


def _refuse_other_layouts(keys: State, downs: int) -> None:
    """Refuse variants that upstream's class can build but no published configuration has.

    Raises:
        LayoutMismatch: the net is not one of this family; the message names what it has or lacks.
    """
    _refuse_other_functions(keys)
    first = tuple(keys["model.1.ffc.convl2l.weight"].shape)
    if first[1:2] != (_INPUT_CHANNELS,):
        raise LayoutMismatch(
            f"a LaMa net whose first layer has the shape {first}: it must take {_INPUT_CHANNELS} channels"
        )
    last = 1 + downs
    splits = [number for number in range(1, 1 + last) if f"model.{number}.ffc.convl2g.weight" in keys]
    if splits != [last]:
        where = f"from model.{splits[0]} on" if splits else "nowhere"
        raise LayoutMismatch(
            f"a LaMa net with global features {where}; they must begin at its last halving, model.{last}"
        )


def _known_pixels_db(net: LaMaNet, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, float]:
    """Return the PSNR of known pixels in dB for each last activation, from the mean of the pictures' square errors."""
    errors = dict.fromkeys(_ACTIVATIONS, 0.0)
    for feed in feeds:
        image, mask = torch.from_numpy(feed["image"]), torch.from_numpy(feed["mask"])
        known = (1 - mask).sum().clamp(min=1) * image.shape[1]
        with torch.inference_mode():
            features = net.features_of(image, mask)
            for name in _ACTIVATIONS:
                painted = output_activation(features, name).clamp(0, 1)
                errors[name] += float((((painted - image) * (1 - mask)) ** 2).sum() / known)
    return {name: -10 * math.log10(max(error / max(len(feeds), 1), 1e-10)) for name, error in errors.items()}


def _ratio(keys: dict[str, Tensor], number: int) -> float:
    local, overall = (keys[f"model.{number}.conv1.ffc.conv{part}.weight"].shape[0] for part in ("l2l", "l2g"))
    return overall / (local + overall)


def _has_tiles(keys: dict[str, Tensor], number: int) -> bool:
    return f"model.{number}.conv1.ffc.convg2g.lfu.conv_layer.weight" in keys
