"""Trains PGN: a centred hole that shrinks from stage to stage, all stages' losses, samples.

Paper: Zhang et al., "Semantic Image Inpainting with Progressive Generative Networks", ACM MM 2018. Nets, losses and
rates as in crashmoon/Progressive-Generative-Networks: stage k of n sees the picture with its hole of 64×64 and the
previous stage's result; its target is the picture with a hole of 1 - k/n of that side. All stages learn together, each
against its own discriminator. The defaults are those of `gan_lstm.py` (four stages); `gan_lstm_two.py` has two stages,
`l2` in place of `l1`, `gan = "vanilla"` and a `discriminator_rate` of 1. Differences from upstream: the generator takes
its step before the discriminators, and averaged weights are saved.

In half precision three things are computed in FP32: the sigmoid at the end of a stage and the gates of the LSTM, whose
gradients would be 0 wherever they round to 1, and cross entropy, on scores rather than on probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn

from export.generators.pgn import FILL, HOLE, PGN, SIDE, PGNNet, PGNOptions
from training.data.cuts import centre_crops, draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.pictures import load_pictures, validation_pictures
from training.errors import ConfigInvalid
from training.loop.adversarial import AdversarialTrainee
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet, validation_figures
from training.loop.updates import OptimiserUpdates, WeightAverage
from training.losses.patch_gan import adversarial_loss
from training.pgn_config import PGNConfig, PGNPhase
from training.seeds import Purpose, generator_for
from training.weights.initial import load_initial

_MIN_PICTURES = 2  # pictures of a batch for each process: the innermost batch norm gets one value from each


class WideCell(nn.LSTMCell):
    """The LSTM cell in FP32, also under autocast."""

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Map N×I and the state, or None for zeros, to the next state."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float(), state)


class FromOnePixel(nn.Module):
    """The layer above the bottleneck: only the centre of its 4×4 kernel meets the one pixel there.

    It is a matrix product, because compilers get the gradient's layout wrong in such a convolution.
    """

    def __init__(self, replaced: nn.ConvTranspose2d) -> None:
        super().__init__()
        self.weight = replaced.weight

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×1×1 to N×C'×2×2."""
        return torch.einsum("ni,iokl->nokl", x.flatten(1), self.weight[..., 1:3, 1:3])


def build_generator(options: PGNOptions, generator: torch.Generator) -> PGNNet:
    """Build the public net for training, with the public code's random weights and the public keys."""
    net = PGNNet(options)
    net.rnn = WideCell(8 * options.width, 16 * options.width)
    initialise(net, generator)
    for stage in range(1, options.stages + 1):
        unet = net.get_submodule(f"unet_{stage}")
        first = cast("nn.Sequential", unet.get_submodule("up5"))
        first[1] = FromOnePixel(cast("nn.ConvTranspose2d", first[1]))
        unet.get_submodule("end").register_forward_hook(_as_fp32)
    return net


def _as_fp32(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output.float()


def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Initialise as the public code: Kaiming's normal by the fan out, biases 0; the cell as torch does, uniform."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LSTMCell):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)


class StageDiscriminator(nn.Module):
    """The public CNN: N×3×128×128 pictures in [0, 1] to N×1×31×31 scores, without a sigmoid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            *_halving_block(width, 2 * width),
            *_halving_block(2 * width, 4 * width),
            nn.Conv2d(4 * width, 1, 4, 1, 1),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Compute scores: above 0 means real."""
        return cast("Tensor", self.layers(pictures))


def _halving_block(into: int, out: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(into, out, 4, 2, 1, bias=False), nn.LeakyReLU(0.2), nn.BatchNorm2d(out)


class ShrinkingHole(nn.Module):
    """The centred hole: whole for the net's input, smaller in the target of every stage, gone in that of the last."""

    fill: Tensor
    holes: Tensor

    def __init__(self, stages: int) -> None:
        super().__init__()
        distance = (torch.arange(SIDE) - (SIDE - 1) / 2).abs()
        reach = torch.maximum(distance[:, None], distance)
        sides = [HOLE * (stages - stage) // stages for stage in range(stages + 1)]
        self.register_buffer("holes", torch.stack([reach < side / 2 for side in sides]))
        self.register_buffer("fill", torch.tensor(FILL).view(3, 1, 1))

    def forward(self, image: Tensor) -> list[Tensor]:
        """Map N×3×128×128 in [0, 1] to the input and the targets of all stages, of the same shape."""
        return [torch.where(hole, self.fill, image) for hole in self.holes]

    def laid_into(self, image: Tensor, output: Tensor) -> Tensor:
        """Return the pictures with their holes, at full size, filled from the output."""
        return torch.where(self.holes[0], output, image)


def roughness(picture: Tensor) -> Tensor:
    """Average the squared differences of neighbours, vertical plus horizontal, in FP32."""
    wide = picture.float()
    return (wide[..., 1:, :] - wide[..., :-1, :]).square().mean() + (wide[..., 1:] - wide[..., :-1]).square().mean()


def generator_gan_loss(scores: Tensor, gan: Literal["minimax", "vanilla"]) -> Tensor:
    """Compute the generator's loss from its pictures' scores: `minimax`, log(1 - D), or `vanilla`, -log D."""
    loss = adversarial_loss(scores, "vanilla", real=gan == "vanilla")
    return loss if gan == "vanilla" else -loss


class GeneratorLosses(nn.Module):
    """The losses of all stages; the discriminators get no gradient here."""

    def __init__(self, net: PGNNet, judges: nn.ModuleList, config: PGNConfig, phase: PGNPhase) -> None:
        super().__init__()
        self.net, self.gan, self.phase = net, config.gan, phase
        self.judges = judges if phase.adversarial else None

    def forward(self, painted: Tensor, targets: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Map the input N×3×128×128 and the targets of the stages to their pictures and losses."""
        outputs, phase = self.net.pictures(painted), self.phase
        gaps = [output - target for output, target in zip(outputs, targets, strict=True)]
        terms = {
            "l1": _total(gap.abs().mean() for gap in gaps),
            "l2": _total(gap.square().mean() for gap in gaps),
            "total_variation": _total(map(roughness, outputs)),
        }
        if self.judges is not None:
            pairs = zip(self.judges, outputs, strict=True)
            terms["adversarial"] = _total(generator_gan_loss(judge(output), self.gan) for judge, output in pairs)
        return outputs, terms | {"loss": _total(getattr(phase, name) * value for name, value in terms.items())}


def _total(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).sum()


class DiscriminatorLosses(nn.Module):
    """The losses of all discriminators: cross entropy on the targets and the outputs of their stages."""

    def __init__(self, judges: nn.ModuleList) -> None:
        super().__init__()
        self.judges = judges

    def forward(self, targets: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """Compute the losses of N×3×128×128 pictures of every stage; `outputs` must be detached."""
        trios = list(zip(self.judges, targets, outputs, strict=True))
        real = _total(adversarial_loss(judge(target), "vanilla", real=True) for judge, target, _ in trios)
        fake = _total(adversarial_loss(judge(output), "vanilla", real=False) for judge, _, output in trios)
        return {"real": real, "fake": fake, "discriminator": real + fake}


class PGNTrainee(AdversarialTrainee[PGNPhase]):
    """A PGN and its discriminators, with data and optimisers."""

    net: PGNNet
    discriminator: nn.ModuleList
    _config: PGNConfig

    def __init__(self, config: PGNConfig, runtime: Runtime) -> None:
        self._config, self._runtime, options = config, runtime, config.generator
        _refuse_single_pictures(config, runtime)
        self._pictures = PictureCache(load_pictures(config.data), runtime.device)
        held_out = validation_pictures(config.data)
        self._validation = PictureCache(held_out, runtime.device) if held_out else None
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net = build_generator(options, random)
        self.discriminator = nn.ModuleList(
            StageDiscriminator(config.discriminator_width) for _ in range(options.stages)
        )
        initialise(self.discriminator, random)
        self._hole = ShrinkingHole(options.stages)
        if config.initial is not None:
            load_initial(self.net, config.initial, lambda state: PGN().translate(state, options).state)
        for each in (self.net, self.discriminator, self._hole):
            runtime.move_to_device(each)
        self._updates = OptimiserUpdates(self.net, config, runtime)
        self._discriminator_updates = OptimiserUpdates(self.discriminator, config, runtime)
        self._average = WeightAverage(self.net, config.ema_decay)

    def make_update(self, phase: PGNPhase) -> NetUpdate:
        wanted = self._config.compile
        losses = self._runtime.compile(GeneratorLosses(self.net, self.discriminator, self._config, phase), wanted)
        judged = self._runtime.compile(DiscriminatorLosses(self.discriminator), wanted)

        def update(rate: Rate, image: Tensor) -> dict[str, Tensor]:
            painted, *targets = self._hole(image)
            self.discriminator.requires_grad_(requires_grad=False)
            with self._runtime.autocast():
                outputs, terms = losses(painted, targets)
            self._updates.apply(terms["loss"], rate)
            self.discriminator.requires_grad_(requires_grad=True)
            if phase.adversarial:
                with self._runtime.autocast():
                    terms |= judged(targets, [output.detach() for output in outputs])
                self._discriminator_updates.apply(terms["discriminator"], rate * self._config.discriminator_rate)
            return {name: value.detach() for name, value in terms.items()}

        return update

    def batch(self, number: int, position: StepPosition[PGNPhase]) -> tuple[Tensor]:
        """Return this process's pictures of a step, N×3×128×128 in [0, 1], alone."""
        seed, device, count = self._config.seed, self._runtime.device, position.phase.batch
        numbers = picture_numbers(self._pictures.count, position.samples_before, count, seed, device)
        cuts = draw_crops(self._config.data, numbers, generator_for(device, seed, number, Purpose.CROPS))
        own = cuts.samples_between(*self._runtime.samples_of_process(count))
        return (self._pictures.crops(own, SIDE).contiguous(memory_format=self._runtime.layout),)

    def sheet(self) -> Tensor:
        """Return samples in rows: the input, each stage's output, the filled picture, the truth."""
        cache = self._validation or self._pictures
        filled, image, *made = self._fill_pictures(cache, 0, min(self._config.sheet_pictures, cache.count))
        return arrange_sheet([*made, filled, image])

    def validate(self) -> dict[str, float]:
        return validation_figures(self._validation, self._fill_pictures)

    @torch.no_grad()
    def _fill_pictures(self, cache: PictureCache, first: int, last: int) -> tuple[Tensor, ...]:
        """Return pictures first to last - 1 filled by the averaged net, the originals, its input and all stages."""
        crops = centre_crops(first, last, self._runtime.device)
        image = cache.crops(crops, SIDE).contiguous(memory_format=self._runtime.layout)
        painted, *_ = self._hole(image)
        with self._runtime.autocast():
            made = cast("PGNNet", self._average.net).pictures(painted)
        return self._hole.laid_into(image, made[-1]), image, painted, *made


def _refuse_single_pictures(config: PGNConfig, runtime: Runtime) -> None:
    """Refuse batches that leave a process one picture: they would fail only in their phase, perhaps after hours."""
    for index, phase in enumerate(config.phase):
        first, last = runtime.samples_of_process(phase.batch)
        if last - first < _MIN_PICTURES:
            least = _MIN_PICTURES * runtime.world
            needed = f"a process needs {_MIN_PICTURES} pictures for its batch norms; use {least} or more"
            raise ConfigInvalid(f"phase.{index}.batch {phase.batch}: {needed}")
