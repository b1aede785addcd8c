"""Trains pix2pixHD: label maps, the generator's and the discriminators' losses, samples.

Paper: Wang et al., "High-Resolution Image Synthesis and Semantic Manipulation with Conditional GANs", CVPR 2018. Nets
and losses as in NVIDIA/pix2pixHD: one-hot classes and edges between instances in, least squares over discriminators of
several scales, feature matching, VGG features. A local net is trained in phases as there: its global part on smaller
pictures, the enhancers on top of it, then both. An encoder of instance features is trained with the generator and saved
in its file. Difference from upstream: VGG16 in place of VGG19, at the last ReLU of each block.

In half precision two things are computed in FP32: tanh, whose gradient would be 0 wherever a picture rounds to ±1, and
the scores (training/losses/scaled_patch_gan.py).
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.family import State
from export.generators.pix2pixhd.contract import edge_map
from export.generators.pix2pixhd.encoder import instance_means
from export.generators.pix2pixhd.generator import Pix2PixHD
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from training.data.cuts import centre_crops, draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.label_maps import FACADE_COLOURS, ids_of_pairs
from training.data.pictures import load_pictures, validation_pictures
from training.loop.adversarial import AdversarialTrainee
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet, validation_figures
from training.loop.updates import OptimiserUpdates, WeightAverage
from training.losses.scaled_patch_gan import (
    ScaledPatchGAN,
    halve,
    scaled_adversarial_loss,
    scaled_matching_loss,
)
from training.losses.vgg16 import VGG16Features, load_features
from training.pix2pixhd_config import Pix2PixHDConfig, Pix2PixHDPhase
from training.seeds import Purpose, generator_for
from training.weights.initial import initialise, load_initial

_VGG_SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0)
"""The paper's weights of VGG's blocks."""


def _as_fp32(_tanh: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.float() for x in inputs)


class TrainedGenerator(nn.Module):
    """The public net; local nets also have `head`, the last layers of the global part while it is trained alone.

    part: the computed part: `global` for the global part on smaller pictures, any other value for the whole net.
    """

    def __init__(self, options: Pix2PixHDOptions) -> None:
        super().__init__()
        self.net, self.part = Pix2PixHD().build(options), "both"
        self.encoded = options.features > 0
        self.enhancers = options.enhancers if options.net == "local" else 0
        last = nn.Conv2d(options.ngf << self.enhancers, options.out_channels, 7)
        self.head = nn.Sequential(nn.ReflectionPad2d(3), last, nn.Tanh()) if self.enhancers else nn.Sequential()
        for module in self.modules():
            if isinstance(module, nn.Tanh):
                module.register_forward_pre_hook(_as_fp32)

    def forward(self, planes: Tensor, picture: Tensor, instances: Tensor) -> Tensor:
        """Map N×C×H×W input planes to pictures N×3×H×W in [-1, 1], FP32, of the size that `scaled` gives.

        Args:
            planes: one-hot classes and edges.
            picture: N×3×H×W in [-1, 1], from which the encoder, if there is one, computes the instances' features.
            instances: N×1×H×W ids.
        """
        if self.encoded:
            features = self.net.get_submodule("encoder")(picture)
            planes = torch.cat([planes, instance_means(features.float(), instances)], 1)
        if self.part == "global":
            return cast("Tensor", self.head(self.net.get_submodule("model")(self.scaled(planes))))
        return cast("Tensor", self.net(planes))

    def scaled(self, pictures: Tensor) -> Tensor:
        """Return N×C×H×W at the size of the part: halved once for each enhancer if the global part is trained alone."""
        for _ in range(self.enhancers if self.part == "global" else 0):
            pictures = halve(pictures)
        return pictures

    def begin_part(self, part: str) -> None:
        """Choose the part to compute and train; in the part `local` the global part is frozen."""
        self.part = part
        if self.enhancers:
            self.net.get_submodule("model").requires_grad_(requires_grad=part != "local")


class GeneratorLosses(nn.Module):
    """The generator's losses; the discriminators get no gradient here."""

    def __init__(
        self, net: TrainedGenerator, judge: nn.Module, features: VGG16Features | None, phase: Pix2PixHDPhase
    ) -> None:
        super().__init__()
        self.net, self.judge, self.phase = net, judge, phase
        self.features = features if phase.perceptual else None

    def forward(self, planes: Tensor, target: Tensor, instances: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Map N×C×H×W input planes, N×3×H×W targets in [-1, 1] and instance ids to pictures and their losses."""
        output, phase = self.net(planes, target, instances), self.phase
        planes, target = self.net.scaled(planes), self.net.scaled(target)
        found = self.judge(planes, output)
        with torch.no_grad():
            wanted = self.judge(planes, target)
        terms = {"adversarial": scaled_adversarial_loss(found, real=True)}
        if phase.matching:
            terms["matching"] = scaled_matching_loss(found, wanted)
        if self.features is not None:
            terms["perceptual"] = perceptual_loss(self.features, output, target)
        terms["l1"] = (output - target).abs().mean()
        loss = sum((getattr(phase, name) * value for name, value in terms.items()), torch.zeros_like(terms["l1"]))
        return output, terms | {"loss": loss}


def perceptual_loss(features: VGG16Features, output: Tensor, target: Tensor) -> Tensor:
    """Return the weighted mean |difference| of VGG16's features of N×3×H×W in [-1, 1]; an FP32 scalar."""
    found = features(output / 2 + 0.5).activations
    with torch.no_grad():
        wanted = features(target / 2 + 0.5).activations
    pairs = zip(_VGG_SHARES, found, wanted, strict=False)
    return torch.stack([share * (f.float() - w.float()).abs().mean() for share, f, w in pairs]).sum()


class DiscriminatorLosses(nn.Module):
    """The discriminators' loss: the mean of their losses on photographs and on generated pictures."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, planes: Tensor, target: Tensor, output: Tensor) -> dict[str, Tensor]:
        """Compute the loss of N×3×H×W pictures; `output` must be detached."""
        real = scaled_adversarial_loss(self.net(planes, target), real=True)
        fake = scaled_adversarial_loss(self.net(planes, output), real=False)
        return {"real": real, "fake": fake, "discriminator": 0.5 * (real + fake)}


class Pix2PixHDTrainee(AdversarialTrainee[Pix2PixHDPhase]):
    """A pix2pixHD generator and its discriminators, with data and optimisers."""

    net: TrainedGenerator
    discriminator: ScaledPatchGAN
    _config: Pix2PixHDConfig

    def __init__(self, config: Pix2PixHDConfig, runtime: Runtime) -> None:
        self._config, self._runtime, options = config, runtime, config.generator
        self._pairs = PictureCache(load_pictures(config.data), runtime.device)
        held_out = validation_pictures(config.data)
        self._validation = PictureCache(held_out, runtime.device) if held_out else None
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net = TrainedGenerator(options)
        self.discriminator = ScaledPatchGAN(
            options.in_channels - options.features + options.out_channels,
            config.discriminator_width,
            config.discriminator_layers,
            config.discriminators,
        )
        for net in (self.net, self.discriminator):
            initialise(net, random)
        if config.initial is not None:
            load_initial(self.net.net, config.initial, lambda state: Pix2PixHD().translate(state, options).state)
        self._features = load_features(config.features) if config.features else None
        for each in (self.net, self.discriminator, *([self._features] if self._features else [])):
            runtime.move_to_device(each)
        self._updates = OptimiserUpdates(self.net, config, runtime)
        self._discriminator_updates = OptimiserUpdates(self.discriminator, config, runtime)
        self._average = WeightAverage(self.net, config.ema_decay)

    @property
    def _averaged(self) -> TrainedGenerator:
        return cast("TrainedGenerator", self._average.net)

    def make_update(self, phase: Pix2PixHDPhase) -> NetUpdate:
        self.net.begin_part(phase.part)
        self._averaged.part = phase.part
        wanted, compiled = self._config.compile, self._runtime.compile
        losses = compiled(GeneratorLosses(self.net, self.discriminator, self._features, phase), wanted)
        judged = compiled(DiscriminatorLosses(self.discriminator), wanted)

        def update(rate: Rate, planes: Tensor, target: Tensor, instances: Tensor) -> dict[str, Tensor]:
            self.discriminator.requires_grad_(requires_grad=False)
            with self._runtime.autocast():
                output, terms = losses(planes, target, instances)
            self._updates.apply(terms["loss"], rate)
            self.discriminator.requires_grad_(requires_grad=True)
            with self._runtime.autocast():
                shown, truth = self.net.scaled(planes), self.net.scaled(target)
                terms |= judged(shown, truth, output.detach())
            self._discriminator_updates.apply(terms["discriminator"], rate)
            return {name: value.detach() for name, value in terms.items()}

        return update

    def batch(self, number: int, position: StepPosition[Pix2PixHDPhase]) -> tuple[Tensor, Tensor, Tensor]:
        """Return a step's input planes N×C×S×S, targets N×3×S×S in [-1, 1] and instances N×1×S×S of this process."""
        seed, device, data = self._config.seed, self._runtime.device, self._config.data
        first, last = self._runtime.samples_of_process(position.phase.batch)
        chosen = picture_numbers(self._pairs.count, position.samples_before, position.phase.batch, seed, device)
        cuts = draw_crops(data, chosen, generator_for(device, seed, number, Purpose.CROPS))
        pairs = self._pairs.crops(cuts.samples_between(first, last), data.crop)
        return self._split_pairs(pairs)

    def _split_pairs(self, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split N×6×S×S of a cache into input planes, targets in [-1, 1] and instance ids N×1×S×S."""
        options, layout = self._config.generator, self._runtime.layout
        ids = ids_of_pairs(pairs)
        instances = ids[:, 1:2] + 256 * ids[:, 2:]
        classes = torch.arange(options.label_nc, device=pairs.device).view(1, -1, 1, 1)
        planes = [(ids[:, :1] == classes).float()]
        if options.edges:
            planes.append(edge_map(instances))
        target = (pairs[:, 3:] * 2 - 1).contiguous(memory_format=layout)
        return torch.cat(planes, 1).contiguous(memory_format=layout), target, instances

    def generator_state(self) -> State:
        return dict(self._averaged.net.state_dict())

    def sheet(self) -> Tensor:
        cache = self._validation or self._pairs
        output, target, labels = self._translate_pairs(cache, 0, min(self._config.sheet_pictures, cache.count))
        return arrange_sheet([self._coloured(labels), output, target])

    def validate(self) -> dict[str, float]:
        return validation_figures(self._validation, self._translate_pairs)

    @torch.no_grad()
    def _translate_pairs(self, cache: PictureCache, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
        """Translate pairs first … last - 1 with the averaged net; returns results and truths in [0, 1], and classes."""
        pairs = cache.crops(centre_crops(first, last, self._runtime.device), self._config.data.crop)
        planes, target, instances = self._split_pairs(pairs)
        with self._runtime.autocast():
            output = self._averaged(planes, target, instances)
        output = F.interpolate(output, target.shape[2:])  # the global part alone makes smaller pictures
        return (output / 2 + 0.5).clamp(0, 1), target / 2 + 0.5, ids_of_pairs(pairs)[:, :1]

    def _coloured(self, labels: Tensor) -> Tensor:
        """Colour class ids N×1×H×W as in facades, or with arbitrary distinct colours: N×3×H×W in [0, 1]."""
        table = torch.arange(256)[:, None] * torch.tensor([67, 131, 197]) % 256
        if self._config.data.layout == "facades":
            table[1 : 1 + len(FACADE_COLOURS)] = torch.tensor(list(FACADE_COLOURS.values()))
        return (table.to(labels.device)[labels[:, 0].long()] / 255).permute(0, 3, 1, 2)
