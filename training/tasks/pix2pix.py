"""Trains pix2pix: pairs, the generator's and the discriminator's losses, samples."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from export.generators.pix2pix import Pix2Pix, Pix2PixOptions, UNetLevel
from training.config import Pix2PixConfig, Pix2PixPhase
from training.data.cuts import centre_crops, draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.pictures import load_pictures, validation_pictures
from training.loop.adversarial import AdversarialTrainee
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet, validation_figures
from training.loop.updates import OptimiserUpdates, WeightAverage
from training.losses.patch_gan import PatchDiscriminator, adversarial_loss
from training.seeds import Purpose, generator_for
from training.weights.initial import initialise, load_initial

_DROPOUT_LEVELS = slice(1, 4)
"""Levels with dropout, counted from the U-Net's innermost: the levels at full width above it."""


def build_generator(options: Pix2PixOptions) -> nn.Module:
    """Build the public net, with dropout in a U-Net if configured: dropout has no weights and shifts no keys."""
    net = Pix2Pix().build(options)
    if options.dropout:
        levels = [module for module in net.modules() if isinstance(module, UNetLevel)]
        for level in levels[::-1][_DROPOUT_LEVELS] if options.net == "unet_256" else levels[::-1][1:3]:
            level.model.append(nn.Dropout(0.5))
    return net


class GeneratorLosses(nn.Module):
    """The generator's losses: L1 and the discriminator's score; the discriminator gets no gradient here."""

    def __init__(self, net: nn.Module, judge: nn.Module, config: Pix2PixConfig, phase: Pix2PixPhase) -> None:
        super().__init__()
        self.net, self.kind, self.phase = net, config.gan, phase
        self.judge = judge if phase.adversarial else None

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Map N×3×H×W source and target in [-1, 1] to the generator's picture and its losses."""
        output = self.net(source)
        terms = {"l1": (output.float() - target).abs().mean()}
        loss = self.phase.l1 * terms["l1"]
        if self.judge is not None:
            terms["adversarial"] = adversarial_loss(self.judge(torch.cat([source, output], 1)), self.kind, real=True)
            loss = loss + self.phase.adversarial * terms["adversarial"]
        return output, terms | {"loss": loss}


class DiscriminatorLosses(nn.Module):
    """The discriminator's loss: the mean of its losses on real pairs and on generated ones."""

    def __init__(self, net: nn.Module, config: Pix2PixConfig) -> None:
        super().__init__()
        self.net, self.kind = net, config.gan

    def forward(self, source: Tensor, target: Tensor, output: Tensor) -> dict[str, Tensor]:
        """Compute the loss of N×3×H×W pictures; `output` must be detached."""
        real = adversarial_loss(self.net(torch.cat([source, target], 1)), self.kind, real=True)
        fake = adversarial_loss(self.net(torch.cat([source, output], 1)), self.kind, real=False)
        return {"real": real, "fake": fake, "discriminator": 0.5 * (real + fake)}


class Pix2PixTrainee(AdversarialTrainee[Pix2PixPhase]):
    """A pix2pix generator and its discriminator, with data and optimisers."""

    _config: Pix2PixConfig

    def __init__(self, config: Pix2PixConfig, runtime: Runtime) -> None:
        self._config, self._runtime = config, runtime
        self._pairs = PictureCache(load_pictures(config.data), runtime.device)
        held_out = validation_pictures(config.data)
        self._validation = PictureCache(held_out, runtime.device) if held_out else None
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net = build_generator(config.generator)
        self.discriminator = PatchDiscriminator(config.discriminator_width, config.discriminator_layers)
        initialise(self.net, random)
        initialise(self.discriminator, random)
        if config.initial is not None:
            load_initial(self.net, config.initial, lambda state: Pix2Pix().translate(state, config.generator).state)
        for net in (self.net, self.discriminator):
            runtime.move_to_device(net)
        self._updates = OptimiserUpdates(self.net, config, runtime)
        self._discriminator_updates = OptimiserUpdates(self.discriminator, config, runtime)
        self._average = WeightAverage(self.net, config.ema_decay)

    def make_update(self, phase: Pix2PixPhase) -> NetUpdate:
        config, compiled = self._config, self._runtime.compile
        losses = compiled(GeneratorLosses(self.net, self.discriminator, config, phase), config.compile)
        judged = compiled(DiscriminatorLosses(self.discriminator, config), config.compile)

        def update(rate: Rate, source: Tensor, target: Tensor) -> dict[str, Tensor]:
            self.discriminator.requires_grad_(requires_grad=False)
            with self._runtime.autocast():
                output, terms = losses(source, target)
            self._updates.apply(terms["loss"], rate)
            self.discriminator.requires_grad_(requires_grad=True)
            if phase.adversarial:
                with self._runtime.autocast():
                    terms |= judged(source, target, output.detach())
                self._discriminator_updates.apply(terms["discriminator"], rate)
            return {name: value.detach() for name, value in terms.items()}

        return update

    def batch(self, number: int, position: StepPosition[Pix2PixPhase]) -> tuple[Tensor, Tensor]:
        """Return this process's sources and targets of a step, in [-1, 1]."""
        seed, device, count = self._config.seed, self._runtime.device, position.phase.batch
        numbers = picture_numbers(self._pairs.count, position.samples_before, count, seed, device)
        cuts = draw_crops(self._config.data, numbers, generator_for(device, seed, number, Purpose.CROPS))
        return self._split_pairs(
            self._pairs.crops(cuts.samples_between(*self._runtime.samples_of_process(count)), self._config.data.crop)
        )

    def _split_pairs(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        scaled, layout = pairs * 2 - 1, self._runtime.layout
        return scaled[:, :3].contiguous(memory_format=layout), scaled[:, 3:].contiguous(memory_format=layout)

    def sheet(self) -> Tensor:
        cache = self._validation or self._pairs
        output, target, source = self._translate_pairs(cache, 0, min(self._config.sheet_pictures, cache.count))
        return arrange_sheet([source, output, target])

    def validate(self) -> dict[str, float]:
        return validation_figures(self._validation, self._translate_pairs)

    @torch.no_grad()
    def _translate_pairs(self, cache: PictureCache, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
        """Translate pairs first … last - 1 with the averaged net; returns results, truths and inputs, all in [0, 1]."""
        pairs = cache.crops(centre_crops(first, last, self._runtime.device), self._config.data.crop)
        source, target = self._split_pairs(pairs)
        with self._runtime.autocast():
            output = cast("Tensor", self._average.net(source)).float()
        return (output / 2 + 0.5).clamp(0, 1), target / 2 + 0.5, source / 2 + 0.5
