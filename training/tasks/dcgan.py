"""Trains DCGAN: latents, the generator's and the discriminator's losses, samples.

Paper: Radford et al., "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks",
2015. Layout of both nets as in pytorch/examples (`dcgan`), with another layer for every doubling of the side. Optional:
Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018; Zhao et al., "Differentiable
Augmentation for Data-Efficient GAN Training", 2020, without which a few hundred pictures are memorised.

In half precision three things are computed in FP32: cross entropy, on scores rather than on probabilities
(`adversarial_loss`), tanh, whose gradient would be 0 wherever a picture rounds to ±1, and the power iteration of the
spectral norm, whose products underflow.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn
from torch.nn.utils import parametrize

from export.generators.dcgan import DCGAN, DCGANNet
from training.data.cuts import draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.pictures import load_pictures
from training.dcgan_config import DCGANConfig
from training.loop.adversarial import AdversarialTrainee
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet
from training.loop.updates import OptimiserUpdates, WeightAverage
from training.losses.patch_gan import adversarial_loss
from training.run_config import PhaseConfig
from training.seeds import Purpose, generator_for
from training.weights.initial import initialise, load_initial

_CHANNELS = 3
_NUMBERS = 7
"""Random numbers that one picture's augmentation takes."""
_MIN_NORM = 1e-12


class SpectralNorm(nn.Module):
    """A parametrisation that divides a weight by its largest singular value; each call makes one power iteration."""

    u: Tensor

    def __init__(self, weight: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("u", F.normalize(torch.randn(len(weight), generator=generator), dim=0))

    def forward(self, weight: Tensor) -> Tensor:
        """Scale a weight of any shape; in FP32 also under autocast."""
        with torch.autocast(weight.device.type, enabled=False):
            matrix = weight.float().flatten(1)
            with torch.no_grad():
                v = F.normalize(matrix.t() @ self.u, dim=0)
                u = F.normalize(matrix @ v, dim=0)
                if self.training:
                    self.u.copy_(u)
            return weight / torch.dot(u, matrix @ v).clamp(min=_MIN_NORM)


class Discriminator(nn.Module):
    """The public discriminator: N×3×S×S pictures in [-1, 1] to N scores, without a sigmoid."""

    def __init__(self, width: int, stages: int, generator: torch.Generator, *, spectral: bool) -> None:
        super().__init__()
        widths = [_CHANNELS, *(width << stage for stage in range(stages))]
        layers: list[nn.Module] = []
        for index in range(stages):
            layers.append(nn.Conv2d(widths[index], widths[index + 1], 4, 2, 1, bias=spectral))
            if index and not spectral:
                layers.append(nn.BatchNorm2d(widths[index + 1]))
            layers.append(nn.LeakyReLU(0.2))
        self.main = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, bias=False))
        initialise(self, generator)
        for layer in self.main if spectral else ():
            if isinstance(layer, nn.Conv2d):
                parametrize.register_parametrization(layer, "weight", SpectralNorm(layer.weight, generator))

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute scores: above 0 means real."""
        return cast("Tensor", self.main(pictures)).flatten()


def augment(pictures: Tensor, numbers: Tensor) -> Tensor:
    """Recolour, shift by up to an eighth of the side and cut out a square of half the side.

    Args:
        pictures: N×3×S×S in [-1, 1].
        numbers: N×7 in [0, 1): brightness, saturation, contrast, shift down and across, the square's middle (2).

    Returns:
        The changed pictures, with 0 in the square and where no pixel was shifted to.
    """
    side = pictures.shape[-1]
    brightness, saturation, contrast, *places = (column[:, None, None, None] for column in numbers.unbind(1))
    x = pictures.float() + (brightness - 0.5)
    grey = x.mean(1, keepdim=True)
    x = (x - grey) * (2 * saturation) + grey
    middle = x.mean((1, 2, 3), keepdim=True)
    x = (x - middle) * (contrast + 0.5) + middle
    shifts = [(place[:, :, 0] * (side // 8 * 2 + 1)).floor() - side // 8 for place in places[:2]]
    down, across = (_shift_matrix(shift, side).to(x.dtype) for shift in shifts)
    x = torch.einsum("nij,ncjk,nlk->ncil", down, x, across)
    steps = torch.arange(side, device=x.device)
    inside = [(steps - (place[:, :, 0] * side).floor()).abs() < side // 4 for place in places[2:]]
    return x * ~(inside[0][:, :, :, None] & inside[1][:, :, None, :])


def _shift_matrix(shift: Tensor, side: int) -> Tensor:
    """Return N×S×S matrices, true at (i, i - shift): the gradient of a product needs no scattered sums."""
    steps = torch.arange(side, device=shift.device)
    return (steps[:, None] - steps) == shift


class GeneratorLosses(nn.Module):
    """The generator's loss: cross entropy of the scores of its pictures against `real`."""

    def __init__(self, net: DCGANNet, judge: nn.Module, *, augmented: bool) -> None:
        super().__init__()
        self.first, self.layers = cast("nn.ConvTranspose2d", net.main[0]), net.main[1:-1]
        self.judge, self.augmented = judge, augmented

    def forward(self, latent: Tensor, numbers: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Map N×Z latents to N×3×S×S pictures in [-1, 1] and their losses."""
        # the first layer sees 1×1; a matrix product, because compilers get the gradient's layout wrong in a convolution
        start = (latent @ self.first.weight.flatten(1)).view(len(latent), *self.first.weight.shape[1:])
        output = torch.tanh(self.layers(start).float())
        scores = self.judge(augment(output, numbers) if self.augmented else output)
        return output, {"loss": adversarial_loss(scores, "vanilla", real=True)}


class DiscriminatorLosses(nn.Module):
    """The discriminator's losses on photographs and on generated pictures, in separate batches."""

    def __init__(self, net: nn.Module, *, augmented: bool) -> None:
        super().__init__()
        self.net, self.augmented = net, augmented

    def forward(self, real: Tensor, output: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        """Compute the losses, and the mean probabilities of being real; `output` must be detached.

        Args:
            real: N×3×S×S photographs in [-1, 1].
            output: N×3×S×S generated pictures.
            numbers: 2×N×7, for the augmentation of both.
        """
        views = [augment(x, one) if self.augmented else x for x, one in zip((real, output), numbers, strict=True)]
        true, false = (self.net(view) for view in views)
        losses = [adversarial_loss(true, "vanilla", real=True), adversarial_loss(false, "vanilla", real=False)]
        believed = {"believed_real": true.float().sigmoid().mean(), "believed_fake": false.float().sigmoid().mean()}
        return {"real": losses[0], "fake": losses[1], "discriminator": losses[0] + losses[1]} | believed


class DCGANTrainee(AdversarialTrainee[PhaseConfig]):
    """A DCGAN generator and its discriminator, with data and optimisers."""

    net: DCGANNet
    discriminator: Discriminator
    _config: DCGANConfig

    def __init__(self, config: DCGANConfig, runtime: Runtime) -> None:
        self._config, self._runtime = config, runtime
        self._pictures = PictureCache(load_pictures(config.data), runtime.device)
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net = DCGANNet(config.generator)
        initialise(self.net, random)
        self.discriminator = Discriminator(
            config.discriminator_width, config.generator.stages, random, spectral=config.spectral_norm
        )
        if config.initial is not None:
            load_initial(self.net, config.initial, lambda state: DCGAN().translate(state, config.generator).state)
        for net in (self.net, self.discriminator):
            runtime.move_to_device(net)
        self._updates = OptimiserUpdates(self.net, config, runtime)
        self._discriminator_updates = OptimiserUpdates(self.discriminator, config, runtime)
        self._average = WeightAverage(self.net, config.ema_decay)

    def make_update(self, phase: PhaseConfig) -> NetUpdate:  # noqa: ARG002 (all phases have the same losses)
        config, compiled = self._config, self._runtime.compile
        losses = compiled(GeneratorLosses(self.net, self.discriminator, augmented=config.augment), config.compile)
        judged = compiled(DiscriminatorLosses(self.discriminator, augmented=config.augment), config.compile)

        def update(rate: Rate, real: Tensor, latent: Tensor, numbers: Tensor) -> dict[str, Tensor]:
            self.discriminator.requires_grad_(requires_grad=False)
            with self._runtime.autocast():
                output, terms = losses(latent, numbers[0])
            self._updates.apply(terms["loss"], rate)
            self.discriminator.requires_grad_(requires_grad=True)
            with self._runtime.autocast():
                terms |= judged(real, output.detach(), numbers[1:])
            self._discriminator_updates.apply(terms["discriminator"], rate)
            return {name: value.detach() for name, value in terms.items()}

        return update

    def batch(self, number: int, position: StepPosition[PhaseConfig]) -> tuple[Tensor, Tensor, Tensor]:
        """Return this process's part of a step: photographs in [-1, 1], latents, augmentation numbers 3×N×7.

        The numbers are for the generator's loss, the photographs and the generated pictures, in this order.
        """
        seed, device, count = self._config.seed, self._runtime.device, position.phase.batch
        first, last = self._runtime.samples_of_process(count)
        chosen = picture_numbers(self._pictures.count, position.samples_before, count, seed, device)
        cuts = draw_crops(self._config.data, chosen, generator_for(device, seed, number, Purpose.CROPS))
        pictures = self._pictures.crops(cuts.samples_between(first, last), self._config.data.crop)
        real = (pictures[:, -_CHANNELS:] * 2 - 1).contiguous(memory_format=self._runtime.layout)
        latent = self._draw_latents(count, number, Purpose.LATENTS)
        drawn = generator_for(device, seed, number, Purpose.AUGMENTATION)
        numbers = torch.rand(3, count, _NUMBERS, generator=drawn, device=device)
        return real, latent[first:last], numbers[:, first:last].contiguous()

    def _draw_latents(self, count: int, number: int, purpose: Purpose) -> Tensor:
        device = self._runtime.device
        generator = generator_for(device, self._config.seed, number, purpose)
        return torch.randn(count, self._config.generator.nz, generator=generator, device=device)

    def sheet(self) -> Tensor:
        """Return a square of pictures by the averaged net, from the same latents at every call."""
        side = self._config.sheet_pictures
        latent = self._draw_latents(side * side, 0, Purpose.PREVIEW)
        with torch.no_grad(), self._runtime.autocast():
            output = cast("Tensor", self._average.net(latent[:, :, None, None])).float()
        return arrange_sheet((output / 2 + 0.5).chunk(side))

    def validate(self) -> dict[str, float]:
        """Return nothing: pictures made of random numbers have no truth."""
        return {}
