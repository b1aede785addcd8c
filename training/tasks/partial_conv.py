"""Trains a partial-convolution U-Net: batches, losses, samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from export.generators.family import State
from training.config import MasksConfig, PConvConfig, PConvPhase
from training.data.cuts import centre_crops, draw_crops, picture_numbers
from training.data.device_cache import PictureCache
from training.data.hole_masks import draw_shapes, fill_shapes
from training.data.mask_files import MaskFiles
from training.data.pictures import load_pictures, validation_pictures
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet, validation_figures
from training.loop.trainee import Trainee
from training.loop.updates import OptimiserUpdates, WeightAverage
from training.losses.hole_discriminator import HoleDiscriminator
from training.losses.lpips_distance import Lpips, load_lpips
from training.losses.partial_conv import (
    grid_unevenness,
    learned_distance,
    log_mse,
    masked_mean,
    normalised_feature_distance,
    perceptual_distance,
    style_distance,
    total_variation,
)
from training.losses.vgg16 import VGG16Features, load_features
from training.nets.partial_conv import PartialUNet, checkpoint_state, initialise, training_state
from training.seeds import Purpose, generator_for
from training.weights.initial import load_initial


class HoleSource:
    """The holes of a batch: drawn, or for a share of `folder_share` taken from files."""

    def __init__(self, config: MasksConfig, side: int, device: torch.device, *, compiled: bool) -> None:
        self._config, self._side = config, side
        self._files = MaskFiles(config.folder, side, device) if config.folder else None
        self._fill = cast(
            "Callable[..., Tensor]", torch.compile(fill_shapes, dynamic=False) if compiled else fill_shapes
        )

    def draw(self, count: int, share: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Draw samples `share[0]` … `share[1]` - 1 of a global batch of `count`: N×1×S×S FP32, 1 = hole."""
        first, last = share
        shapes = draw_shapes(count, self._config.coverage, generator)
        holes = self._fill(shapes.samples_between(first, last), self._side)
        if self._files is None:
            return holes
        chosen = torch.rand(count, generator=generator, device=generator.device) < self._config.folder_share
        files = self._files.draw(count, share, self._config.coverage, generator)
        return torch.where(chosen[first:last, None, None, None], files, holes)


_ALWAYS = ("hole", "valid")
_TERMS = (*_ALWAYS, "log_mse", "total_variation", "weave", "perceptual", "style", "directed", "lpips", "adversarial")


class PartialLosses(nn.Module):
    """The net and its losses in one module, compiled together so that elementwise operations are fused."""

    weights: Tensor
    """Weights of the losses; a buffer, so that changed weights need no new compilation."""

    def __init__(
        self,
        net: PartialUNet,
        features: VGG16Features | None,
        phase: PConvPhase,
        judge: HoleDiscriminator | None = None,
        lpips: Lpips | None = None,
    ) -> None:
        super().__init__()
        self.net, self.features, self.phase, self.judge, self.lpips = net, features, phase, judge, lpips
        self.names = [name for name in _TERMS if name in _ALWAYS or getattr(phase, name) > 0]
        weights = torch.tensor([getattr(phase, name) for name in self.names])
        self.register_buffer("weights", weights.to(next(net.parameters()).device), persistent=False)

    def forward(self, image: Tensor, hole: Tensor, shift: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the filled picture, every loss that has a weight (unweighted), and their weighted sum as `loss`.

        Args:
            image: N×3×H×W in [0, 1].
            hole: N×1×H×W, 1 = fill.
            shift: int64, pixels by which pictures are shifted cyclically before they enter VGG16 or AlexNet.
        """
        phase, output = self.phase, self.net(image, hole)
        difference = (output - image).abs()
        terms = {"hole": masked_mean(difference, hole), "valid": masked_mean(difference, 1 - hole)}
        composite = torch.where(hole > 0, output, image)
        if phase.log_mse:
            terms["log_mse"] = log_mse(output, image, hole)
        if phase.total_variation:
            terms["total_variation"] = total_variation(composite, hole)
        if phase.weave:
            terms["weave"] = grid_unevenness(composite, hole)
        if self.features is not None and phase.needs_features:
            shown = [composite, output] if phase.features_of_output else [composite]
            terms |= self._feature_terms(
                self.features, *(_shift_cyclically(picture, shift) for picture in (image, *shown))
            )
        if self.lpips is not None and phase.lpips:
            terms["lpips"] = learned_distance(
                self.lpips, _shift_cyclically(composite, shift), _shift_cyclically(image, shift)
            )
        if self.judge is not None and phase.adversarial:
            terms["adversarial"] = self.judge.generator_loss(composite, hole)
        return composite, terms | {"loss": (torch.stack([terms[name] for name in self.names]) * self.weights).sum()}

    def _feature_terms(self, features: VGG16Features, image: Tensor, *shown: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            wanted = features(image)
        found, terms = [features(picture) for picture in shown], {}
        if self.phase.perceptual:
            terms["perceptual"] = torch.stack([perceptual_distance(f.pooled, wanted.pooled) for f in found]).sum()
        if self.phase.style:
            terms["style"] = torch.stack([style_distance(f.pooled, wanted.pooled) for f in found]).sum()
        if self.phase.directed:
            gaps = [normalised_feature_distance(f.activations, wanted.activations) for f in found]
            terms["directed"] = torch.stack(gaps).sum()
        return terms


def _shift_cyclically(picture: Tensor, shift: Tensor | None) -> Tensor:
    """Shift the picture cyclically.

    VGG16's poolings and AlexNet's strides sample on a fixed grid, as the decoder's upsamplings do. Without the shift,
    the net could lower the losses by drawing a pattern that is aligned with that grid.
    """
    if shift is None:
        return picture
    rows, columns = (torch.arange(side, device=picture.device) for side in picture.shape[-2:])
    rows, columns = (rows - shift[0]) % len(rows), (columns - shift[1]) % len(columns)
    return picture.index_select(2, rows).index_select(3, columns)


class PartialTrainee(Trainee[PConvPhase]):
    """A partial-convolution U-Net with its data, losses and optimiser."""

    def __init__(self, config: PConvConfig, runtime: Runtime) -> None:
        self._config, self._runtime, device = config, runtime, runtime.device
        self._pictures = PictureCache(load_pictures(config.data), device)
        held_out = validation_pictures(config.data)
        self._validation = PictureCache(held_out, device) if held_out else None
        self._holes = HoleSource(config.masks, config.data.crop, device, compiled=runtime.compiles(config.compile))
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net = PartialUNet(config.generator)
        initialise(self.net, random)
        if config.initial is not None:
            load_initial(self.net, config.initial, training_state)
        self._features = load_features(config.features) if config.features else None
        self._lpips = load_lpips(config.lpips_features) if config.lpips_features else None
        self.judge: HoleDiscriminator | None = None
        if any(phase.adversarial for phase in config.phase):
            self.judge = HoleDiscriminator(config.discriminator_width, config.discriminator_layers)
            initialise(self.judge, random)
        for net in (self.net, self._features, self._lpips, self.judge):
            if net is not None:
                runtime.move_to_device(net)
        self._updates = OptimiserUpdates(self.net, config, runtime)
        self._judge_updates = OptimiserUpdates(self.judge, config, runtime) if self.judge is not None else None
        self._average = WeightAverage(self.net, config.ema_decay)
        self._update: NetUpdate | None = None

    def begin_phase(self, phase: PConvPhase) -> None:
        self._runtime.broadcast_buffers(self.net)
        self.net.train()
        if phase.freeze_encoder_norm:
            self.net.freeze_norm("enc")
        if phase.freeze_decoder_norm:
            self.net.freeze_norm("dec")
        judge = self.judge if phase.adversarial else None
        features, lpips = self._features if phase.needs_features else None, self._lpips if phase.lpips else None
        losses = PartialLosses(self.net, features, phase, judge, lpips)
        recorder = self._runtime.recorder(wanted=self._config.cuda_graphs)
        self._update = self._runtime.replay(self._make_update(losses, judge), recorder)

    def _make_update(self, losses: PartialLosses, judge: HoleDiscriminator | None) -> NetUpdate:
        wanted = self._config.compile
        compute = self._runtime.compile(losses, wanted)
        judging = None if judge is None else self._runtime.compile(judge, wanted)

        def update(rate: Rate, image: Tensor, hole: Tensor, shift: Tensor) -> dict[str, Tensor]:
            if self.judge is not None:
                self.judge.requires_grad_(requires_grad=False)
            with self._runtime.autocast():
                composite, terms = compute(image, hole, shift)
            self._updates.apply(terms["loss"], rate)
            if self.judge is not None and judging is not None and self._judge_updates is not None:
                self.judge.requires_grad_(requires_grad=True)
                with self._runtime.autocast():
                    judged = judging(composite.detach(), image, hole)
                self._judge_updates.apply(judged["discriminator"], rate)
                terms = terms | judged
            return {name: value.detach() for name, value in terms.items()}

        return update

    def step(self, number: int, position: StepPosition[PConvPhase]) -> dict[str, Tensor]:
        if self._update is None:
            raise RuntimeError("begin_phase comes before step")
        image, hole = self.batch(number, position)
        side, device = self._config.data.crop, self._runtime.device
        random = generator_for(device, self._config.seed, number, Purpose.SHIFT)
        shift = torch.randint(side, (2,), generator=random, device=device)
        terms = self._update(position.learning_rate, image, hole, shift)
        self._average.update()
        return terms

    def batch(self, number: int, position: StepPosition[PConvPhase]) -> tuple[Tensor, Tensor]:
        """Return this process's pictures and holes of a step."""
        seed, device, count = self._config.seed, self._runtime.device, position.phase.batch
        share = self._runtime.samples_of_process(count)
        numbers = picture_numbers(self._pictures.count, position.samples_before, count, seed, device)
        cuts = draw_crops(self._config.data, numbers, generator_for(device, seed, number, Purpose.CROPS))
        image = self._pictures.crops(cuts.samples_between(*share), self._config.data.crop)
        hole = self._holes.draw(count, share, generator_for(device, seed, number, Purpose.MASKS))
        return image.contiguous(memory_format=self._runtime.layout), hole

    def state(self) -> dict[str, Any]:
        self._runtime.broadcast_buffers(self.net)
        own = {"net": self.net.state_dict(), "updates": self._updates.state(), "average": self._average.state()}
        if self.judge is None or self._judge_updates is None:
            return own
        self._runtime.broadcast_buffers(self.judge)
        return own | {"judge": self.judge.state_dict(), "judge_updates": self._judge_updates.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._updates.load(state["updates"])
        self._average.load(state["average"])
        if self.judge is not None and self._judge_updates is not None:
            self.judge.load_state_dict(state["judge"])
            self._judge_updates.load(state["judge_updates"])

    def generator_state(self) -> State:
        return checkpoint_state(cast("PartialUNet", self._average.net))

    def sheet(self) -> Tensor:
        cache = self._validation or self._pictures
        last = min(self._config.sheet_pictures, cache.count)
        composite, image, hole = self._fill_pictures(cache, 0, last)
        return arrange_sheet([torch.where(hole > 0, 0.5, image), composite, image])

    def validate(self) -> dict[str, float]:
        return validation_figures(self._validation, self._fill_pictures)

    @torch.no_grad()
    def _fill_pictures(self, cache: PictureCache, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
        """Fill pictures first … last - 1 with the averaged net; returns fills, truths and the fixed holes."""
        device, side = self._runtime.device, self._config.data.crop
        image = cache.crops(centre_crops(first, last, device), side).contiguous(memory_format=self._runtime.layout)
        generator = generator_for(torch.device("cpu"), self._config.seed, first, Purpose.PREVIEW)
        hole = fill_shapes(draw_shapes(last - first, (0.1, 0.5), generator), side).to(device)
        with self._runtime.autocast():
            output = self._average.net(image, hole)
        return torch.where(hole > 0, output.clamp(0, 1), image), image, hole
