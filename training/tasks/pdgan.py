"""Trains PD-GAN: stage 1, a prior of partial convolutions; then the SPDNorm generator, two fills of each hole a step.

Paper: Liu et al., "PD-GAN: Probabilistic Diverse GAN for Image Inpainting", CVPR 2021. Nets, losses and rates as in
KumapowerLIU/PD-GAN: the generator learns on the prior of a frozen stage 1. It makes two fills of each picture from
two latents; both are judged (hinge, two scales, feature matching), and the reciprocal of their difference in the hole
is a loss. The hard SPDNorm lets fills differ more deeper in the hole; the soft one learns where they may differ.

Differences from upstream: stage 1 is trained too, on differences inside and outside the hole (upstream loads a trained
one); VGG16 replaces VGG19, and without its file the diversity loss compares pixels; the discriminators have no spectral
norm, see one mask channel, and see fills inside their pictures, as they are served; a discriminator on VGG16's features
can join them; the generator takes its step before them, and averaged weights are saved.

What half precision would break is explained in training/nets/pdgan.py and training/losses/diverse_fills.py.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from export.generators.family import State
from export.generators.pdgan.diverse import SIDE
from export.generators.pdgan.generator import PDGANNet
from training.data.cuts import centre_crops, draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.hole_masks import draw_shapes, fill_shapes
from training.data.pictures import load_pictures, validation_pictures
from training.loop.adversarial import AdversarialTrainee
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet, validation_figures
from training.loop.updates import OptimiserUpdates, WeightAverage
from training.losses.projected_discriminator import ProjectedDiscriminator
from training.losses.scaled_patch_gan import ScaledPatchGAN
from training.losses.vgg16 import NormalisedFeatures, load_features
from training.nets.pdgan import build_nets, checkpoint_state, training_state
from training.pdgan_config import PDGANConfig, PDGANPhase
from training.seeds import Purpose, generator_for
from training.tasks.fill_judge import FillJudge, JudgedBatch
from training.tasks.pdgan_losses import FILLS, DiscriminatorLosses, DiverseLosses, PriorLosses
from training.weights.initial import initialise, load_initial

_JUDGED = 4
"""Channels that the discriminators see: the hole and a picture."""


class PDGANTrainee(AdversarialTrainee[PDGANPhase]):
    """Both stages of PD-GAN and the discriminators, with data and optimisers."""

    net: PDGANNet
    discriminator: ScaledPatchGAN
    _config: PDGANConfig

    def __init__(self, config: PDGANConfig, runtime: Runtime) -> None:
        self._config, self._runtime, options = config, runtime, config.generator
        self._pictures = PictureCache(load_pictures(config.data), runtime.device)
        held_out = validation_pictures(config.data)
        self._validation = PictureCache(held_out, runtime.device) if held_out else None
        self._features = load_features(config.features) if config.features else None
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net = build_nets(options, random)
        shape = (config.discriminator_width, config.discriminator_layers, config.discriminators)
        self.discriminator = ScaledPatchGAN(_JUDGED, *shape)
        initialise(self.discriminator, random)
        if config.initial is not None:
            load_initial(self.net, config.initial, lambda state: training_state(state, options))
        for each in (self.net, self.discriminator, self._features):
            if each is not None:
                runtime.move_to_device(each)
        self._projected: FillJudge | None = None
        if config.projected and self._features:
            features = NormalisedFeatures(self._features)
            heads = ProjectedDiscriminator(features, config.projected.width, random)
            self._projected = FillJudge(heads, config.projected, config, runtime)
        self._updates = OptimiserUpdates(self.net, config, runtime)
        self._discriminator_updates = OptimiserUpdates(self.discriminator, config, runtime)
        self._average = WeightAverage(self.net, config.ema_decay)
        self._part = config.phase[0].part

    def make_update(self, phase: PDGANPhase) -> NetUpdate:
        self._part = phase.part
        return self._make_prior_update(phase) if phase.part == "prior" else self._make_diverse_update(phase)

    def _make_prior_update(self, phase: PDGANPhase) -> NetUpdate:
        losses = self._runtime.compile(PriorLosses(self.net, self._features, phase), self._config.compile)

        def update(rate: Rate, image: Tensor, valid: Tensor) -> dict[str, Tensor]:
            with self._runtime.autocast():
                terms = losses(image, valid)
            self._updates.apply(terms["loss"], rate)
            return {name: value.detach() for name, value in terms.items()}

        return update

    def _make_diverse_update(self, phase: PDGANPhase) -> NetUpdate:
        wanted = self._config.compile
        losses = self._runtime.compile(DiverseLosses(self.net, self.discriminator, self._features, phase), wanted)
        judged = self._runtime.compile(DiscriminatorLosses(self.discriminator), wanted)
        paint_prior = self._runtime.compile(self.net.prior, wanted)
        projected = self._projected if phase.projected else None
        if projected:
            projected.compile(wanted=self._runtime.compiles(wanted))

        def update(rate: Rate, image: Tensor, valid: Tensor, latents: Tensor) -> dict[str, Tensor]:
            self.discriminator.requires_grad_(requires_grad=False)
            with self._runtime.autocast():
                with torch.no_grad():
                    prior = paint_prior(image * valid, valid)
                filled, terms = losses(image, valid, prior, latents)
            if projected:
                projected.freeze()
                terms["projected"] = projected.generator_losses(_with_holes(filled, valid))[0]
                terms["loss"] = terms["loss"] + phase.projected * terms["projected"]
            self._updates.apply(terms["loss"], rate)
            self.discriminator.requires_grad_(requires_grad=True)
            with self._runtime.autocast():
                terms |= judged(image, valid, filled.detach())
            self._discriminator_updates.apply(terms["discriminator"], rate * self._config.discriminator_rate)
            if projected:
                terms |= self._teach(projected, rate, image, valid, filled.detach())
            return {name: value.detach() for name, value in terms.items()}

        return update

    def _teach(self, judge: FillJudge, rate: Rate, image: Tensor, valid: Tensor, filled: Tensor) -> dict[str, Tensor]:
        """Run a step of the discriminator on VGG16's features; returns its loss and accuracy."""
        real = _with_holes(image.repeat_interleave(FILLS, 0), valid)
        batch = JudgedBatch(real, _with_holes(filled, valid), image / 2 + 0.5, 1 - valid)
        loss, accuracy = judge.learn(rate, batch, penalised=judge.is_penalised(0))
        return {"projected_judge": loss, "projected_accuracy": accuracy}

    def _draw_latents(self, number: int, count: int) -> Tensor:
        """Draw this process's part of a step's latents, N×2×Z."""
        device, first_last = self._runtime.device, self._runtime.samples_of_process(count)
        random = generator_for(device, self._config.seed, number, Purpose.LATENTS)
        shape = (count, FILLS, self._config.generator.z_dim)
        return torch.randn(shape, generator=random, device=device)[slice(*first_last)]

    def batch(self, number: int, position: StepPosition[PDGANPhase]) -> tuple[Tensor, ...]:
        """Return this process's pictures of a step, N×3×256×256 in [-1, 1], and masks, N×1×256×256, 1 = valid.

        In phases after stage 1 latents, N×2×Z, follow.
        """
        seed, device, count = self._config.seed, self._runtime.device, position.phase.batch
        first, last = self._runtime.samples_of_process(count)
        numbers = picture_numbers(self._pictures.count, position.samples_before, count, seed, device)
        cuts = draw_crops(self._config.data, numbers, generator_for(device, seed, number, Purpose.CROPS))
        image = self._pictures.crops(cuts.samples_between(first, last), SIDE) * 2 - 1
        shapes = draw_shapes(count, self._config.coverage, generator_for(device, seed, number, Purpose.MASKS))
        valid = 1 - fill_shapes(shapes.samples_between(first, last), SIDE)
        latents = () if position.phase.part == "prior" else (self._draw_latents(number, count),)
        return image.contiguous(memory_format=self._runtime.layout), valid, *latents

    def state(self) -> dict[str, Any]:
        return super().state() | ({"projected": self._projected.state()} if self._projected else {})

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        if self._projected:
            self._projected.load(state["projected"])

    def generator_state(self) -> State:
        """Return stage 1 and, if there is one, the generator in one state, under the public keys."""
        return checkpoint_state(cast("PDGANNet", self._average.net))

    def sheet(self) -> Tensor:
        """Return samples in rows: the input, the prior, two fills (in stage 1 one), the truth."""
        cache = self._validation or self._pictures
        first, image, torn, *others = self._fill_pictures(cache, 0, min(self._config.sheet_pictures, cache.count))
        return arrange_sheet([torn, *others, first, image])

    def validate(self) -> dict[str, float]:
        return validation_figures(self._validation, self._fill_pictures)

    @torch.no_grad()
    def _fill_pictures(self, cache: PictureCache, first: int, last: int) -> tuple[Tensor, ...]:
        """Fill pictures first to last - 1 with the averaged nets, all in [0, 1].

        Returns a fill, the originals, the input, the prior, and the other fill if there is a generator in training.
        """
        device, nets = self._runtime.device, cast("PDGANNet", self._average.net)
        picture = cache.crops(centre_crops(first, last, device), SIDE)
        image = (picture * 2 - 1).contiguous(memory_format=self._runtime.layout)
        random = generator_for(torch.device("cpu"), self._config.seed, first, Purpose.PREVIEW)
        hole = fill_shapes(draw_shapes(last - first, (0.1, 0.5), random), SIDE).to(device)
        latents = torch.randn((FILLS, last - first, self._config.generator.z_dim), generator=random).to(device)
        valid = 1 - hole
        with self._runtime.autocast():
            prior = nets.prior(image * valid, valid)
            made = [prior]
            if nets.PDGAN is not None and self._part == "diverse":
                made = [nets.PDGAN(latent, prior, valid) for latent in latents]
        fills = [torch.where(hole > 0, each.float() / 2 + 0.5, picture) for each in made]
        return fills[0], picture, torch.where(hole > 0, 0.5, picture), prior.float() / 2 + 0.5, *fills[1:]


def _with_holes(pictures: Tensor, valid: Tensor) -> Tensor:
    """Return 2·N pictures in [-1, 1], two in a row of each of N masks, as 2·N×4×256×256 in [0, 1], hole last."""
    return torch.cat([pictures / 2 + 0.5, (1 - valid).repeat_interleave(FILLS, 0)], 1)
