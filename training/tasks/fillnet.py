"""Adversarial training of FillNet with a patch discriminator: batches, losses, both nets' steps, samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch._functorch.config
from torch import Tensor, nn

from export.generators.family import State
from export.generators.fillnet import FillUNet
from training.data.arrivals import ShardWatcher
from training.data.cuts import centre_crops, draw_crops
from training.data.device_cache import PictureCache
from training.data.holes import draw_numbers, draw_thick_boxes, make_holes
from training.data.pictures import load_pictures, validation_pictures
from training.fill_config import FillConfig, FillPhase
from training.loop.balance import LossBalancer
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet, mean_psnr_db
from training.loop.trainee import Trainee
from training.loop.updates import OptimiserUpdates, UpdateSettings, WeightAverage
from training.losses.multi_scale_discriminator import (
    MultiScaleDiscriminator,
    discriminator_loss,
    feature_matching_loss,
    generator_loss,
    gradient_penalty,
)
from training.losses.picture_views import half_size_and_crop, roll_picture
from training.losses.vgg16 import VGG16Features, load_features
from training.nets.fillnet import checkpoint_state, make_net, training_state
from training.seeds import Purpose, generator_for
from training.weights.initial import load_initial

_LONGEST, _LONGEST_JUDGED = 200.0, 50.0
"""Clipping norms of the gradients of generator and discriminator, which only spikes exceed."""
_GENTLE = 0.3
_LAYERS = (0.5, 1.0, 1.5)
"""Weights of VGG16's relu1_2, relu2_2 and relu3_3."""
_LEAST_SQUARES = 1e-2
_LOOKS_EVERY = 20
"""Steps between checks for compiled code and broken shards, for which processes have to agree."""
_PENALISED = 4
"""R1 is computed on one of this many pictures."""
_AT_ONCE = 16


class NormalisedFeatures(nn.Module):
    """VGG16 up to relu3_3, features scaled to length 1 at every position: faint texture weighs as much as edges."""

    def __init__(self, features: VGG16Features) -> None:
        super().__init__()
        self.features = features

    def forward(self, image: Tensor) -> list[Tensor]:
        """Compute the features of pictures, N×3×H×W in [0, 1]."""
        found = self.features(image).activations
        lengths = [(f.float().square().sum(1, keepdim=True) + _LEAST_SQUARES).rsqrt() for f in found]
        return [f * length.to(f.dtype) for f, length in zip(found, lengths, strict=True)]


def in_fp32(state: State) -> State:
    """Return the tensors in FP32, as a judge.pth in FP16 is trained on."""
    return {key: tensor.float() for key, tensor in state.items()}


class _CompiledParts(NamedTuple):
    """The functions that can be compiled."""

    paint: Callable[[Tensor, Tensor], Tensor]
    features: Callable[[Tensor], list[Tensor]] | None
    judge: Callable[[Tensor], Any]
    make_holes: Callable[..., Tensor]


class FillTrainee(Trainee[FillPhase]):
    """FillNet and its discriminator with their data, losses and optimisers."""

    def __init__(self, config: FillConfig, runtime: Runtime) -> None:
        self._config, self._runtime, device = config, runtime, runtime.device
        self._arrivals = ShardWatcher(config.data) if config.capacity_gb else None
        if self._arrivals and config.capacity_gb:
            self._pictures = self._arrivals.cache(device, config.capacity_gb * 1e9)
        else:
            self._pictures = PictureCache(load_pictures(config.data), device)
        held_out = validation_pictures(config.data)
        self._validation = PictureCache(held_out, device) if held_out else None
        random = generator_for(torch.device("cpu"), config.seed, 0, Purpose.WEIGHTS)
        self.net, self.judge = make_net(config.generator, random), MultiScaleDiscriminator(config.judge.widths, random)
        if config.initial is not None:
            load_initial(self.net, config.initial, training_state)
        if config.judge.initial is not None:
            load_initial(self.judge, config.judge.initial, in_fp32)
        features = load_features(config.features) if config.features and config.shares.perceptual else None
        self._features = NormalisedFeatures(features) if features else None
        for net in (self.net, self.judge, *([self._features] if self._features else [])):
            runtime.move_to_device(net)
        self._updates = OptimiserUpdates(self.net, config, runtime, UpdateSettings(config.betas, _LONGEST, _GENTLE))
        self._judge_updates = OptimiserUpdates(
            self.judge, config, runtime, UpdateSettings(config.judge.betas, _LONGEST_JUDGED)
        )
        self._average = WeightAverage(self.net, config.ema_decay)
        self._balancer = LossBalancer(config.shares.model_dump(), runtime)
        self._eager = _CompiledParts(self.net, self._features, self.judge, make_holes)
        self._parts = self._eager
        self.compiled = False

    def begin_phase(self, phase: FillPhase) -> None:
        self._parts, self.compiled = self._eager, False
        self._compile(phase)

    def _compile(self, phase: FillPhase) -> None:
        """Switch to compiled code if configured and, when another process compiles it, once all processes have it."""
        if self.compiled or not self._runtime.compiles(self._config.compile):
            return
        if phase.compile_after and self._runtime.any_process(not phase.compile_after.exists()):
            return
        torch._functorch.config.donated_buffer = False  # noqa: SLF001 (no other way): gradients are taken several times
        torch._dynamo.config.recompile_limit = 64  # noqa: SLF001 (sizes, with and without gradients)
        made: list[Any] = [torch.compile(part, dynamic=False) if part else None for part in self._eager]
        self._parts, self.compiled = _CompiledParts(*made), True

    def step(self, number: int, place: StepPosition[FillPhase]) -> dict[str, Tensor]:
        if number % _LOOKS_EVERY == 0:
            self._compile(place.phase)
            if self._arrivals:
                self._arrivals.raise_failure()
        image, hole = self.batch(number, place)
        with self._runtime.autocast():
            output = self._parts.paint(image, hole)
        composite = torch.where(hole > 0, output, image)
        self.judge.requires_grad_(requires_grad=False)
        views = self._draw_crop_and_roll(number, image.shape[-1])
        shown = composite.detach().requires_grad_()
        losses = self._compute_losses(shown, image, hole, views)
        gradient = self._balancer.gradient(losses, shown, number, self._adversarial_ramp(number))
        if number >= self._config.judge.alone:
            self._updates.apply(composite, place.learning_rate, gradient)
            self._average.update(self.net)
        judged = self._discriminator_step(number, place, (composite.detach(), image, hole), views)
        return {name: value.detach() for name, value in (losses | judged).items()}

    def _adversarial_ramp(self, number: int) -> float:
        first, last = self._config.judge.ramp
        return min(1.0, max(0.0, (number - first) / (last - first)))

    def _draw_crop_and_roll(self, number: int, side: int) -> tuple[int, int, int, int]:
        """Draw the position of VGG16's crop and the roll of the discriminator's input; the same in all processes."""
        random = generator_for(torch.device("cpu"), self._config.seed, number, Purpose.VIEWS)
        top, left = torch.randint(side // 2 + 1, (2,), generator=random).tolist()
        down, right = torch.randint(self._config.judge.shift, (2,), generator=random).tolist()
        return top, left, down, right

    def _compute_losses(
        self, shown: Tensor, image: Tensor, hole: Tensor, views: tuple[int, int, int, int]
    ) -> dict[str, Tensor]:
        """Compute the losses with a share, unweighted; `shown` is the filled picture, a leaf."""
        top, left, *shift = views
        losses = {"difference": (shown - image).abs().sum() / (hole.sum() * image.shape[1]).clamp(min=1)}
        if self._parts.features is not None:
            with torch.no_grad(), self._runtime.autocast():
                wanted = self._parts.features(self._in_memory_layout(half_size_and_crop(image, top, left)))
            with self._runtime.autocast():
                found = self._parts.features(self._in_memory_layout(half_size_and_crop(shown, top, left)))
            gaps = [(f - w).float().square().sum(1).mean() for f, w in zip(found, wanted, strict=True)]
            losses["perceptual"] = torch.stack([k * gap for k, gap in zip(_LAYERS, gaps, strict=True)]).sum()
        with torch.no_grad():
            real = self._discriminator_output(image, hole, shift)
        fake = self._discriminator_output(shown, hole, shift)
        losses["adversarial"] = generator_loss(fake.logits, roll_picture(hole, *shift))
        losses["matching"] = feature_matching_loss(fake.features, real.features)
        return losses

    def _discriminator_output(self, picture: Tensor, hole: Tensor, shift: Sequence[int]) -> Any:
        down, right = shift
        with self._runtime.autocast():
            return self._parts.judge(self._in_memory_layout(roll_picture(torch.cat([picture, hole], 1), down, right)))

    def _in_memory_layout(self, picture: Tensor) -> Tensor:
        return picture.contiguous(memory_format=self._runtime.layout)

    def _discriminator_step(
        self,
        number: int,
        place: StepPosition[FillPhase],
        batch: tuple[Tensor, Tensor, Tensor],
        views: tuple[int, int, int, int],
    ) -> dict[str, Tensor]:
        composite, image, hole = batch
        knobs, shift = self._config.judge, views[2:]
        self.judge.requires_grad_(requires_grad=True)
        both = self._discriminator_output(torch.cat([image, composite]), torch.cat([hole, hole]), shift)
        real, fake = zip(*(scale.chunk(2) for scale in both.logits), strict=True)
        found = {"judge": discriminator_loss(real, fake, roll_picture(hole, *shift))}
        loss = found["judge"]
        if knobs.penalty and number % knobs.penalty_every == 0:  # eagerly and in FP32, as it is a second-order gradient
            few = max(1, len(image) // _PENALISED)
            steep = gradient_penalty(self.judge, image[:few], hole[:few])
            loss = loss + steep * (knobs.penalty / 2 * knobs.penalty_every)
        self._judge_updates.apply(loss, place.learning_rate * knobs.rate)
        return found

    def batch(self, number: int, place: StepPosition[FillPhase]) -> tuple[Tensor, Tensor]:
        """Return this process's pictures and holes for a step."""
        seed, device, count = self._config.seed, self._runtime.device, place.phase.batch
        first, last = self._runtime.samples_of_process(count)
        side = place.phase.side(number, self._config.data.crop)
        order = generator_for(device, seed, number, Purpose.ORDER)  # drawn anew each step, as pictures may have arrived
        numbers = torch.randint(self._pictures.count, (count,), generator=order, device=device)
        cuts = draw_crops(self._config.data, numbers, generator_for(device, seed, number, Purpose.CROPS))
        image = self._in_memory_layout(self._pictures.crops(cuts.samples_between(first, last), side))
        random = generator_for(device, seed, number, Purpose.MASKS)
        uniform, normal = draw_numbers(count, random)
        hole = self._parts.make_holes(uniform[first:last], normal[first:last], side, self._config.coverage)
        if self._config.thick:
            thick = torch.rand(count, 1, 1, 1, generator=random, device=device) < self._config.thick
            hole = torch.where(thick[first:last], draw_thick_boxes(count, side, random)[first:last], hole)
        return image, self._in_memory_layout(hole)

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "updates": self._updates.state(),
            "average": self._average.state(),
            "judge": self.judge.state_dict(),
            "judge_updates": self._judge_updates.state(),
            "balancer": self._balancer.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._updates.load(state["updates"])
        self._average.load(state["average"])
        self.judge.load_state_dict(state["judge"])
        self._judge_updates.load(state["judge_updates"])
        self._balancer.load(state["balancer"])

    def generator_state(self) -> State:
        return checkpoint_state(self._average.net)

    def sheet(self) -> Tensor:
        cache = self._validation or self._pictures
        composite, image, hole = self._fill_pictures(cache, 0, min(self._config.sheet_pictures, cache.count))
        return arrange_sheet([torch.where(hole > 0, 0.5, image), composite, image])

    def validate(self) -> dict[str, float]:
        """Measure PSNR and the distance in VGG16's features, on a fixed set of pictures and holes."""
        cache = self._validation
        if cache is None:
            return {}
        pairs, distances = [], []
        for first in range(0, cache.count, _AT_ONCE):
            composite, image, _ = self._fill_pictures(cache, first, min(first + _AT_ONCE, cache.count))
            pairs.append((composite, image))
            distances.append(self._feature_distance(composite, image))
        return {
            "validation_psnr_db": mean_psnr_db(pairs),
            "validation_distance": float(torch.cat(distances).mean()),
        }

    @torch.no_grad()
    def _feature_distance(self, composite: Tensor, image: Tensor) -> Tensor:
        """Return the squared distance in VGG16's features, summed over layers: N."""
        if self._features is None:
            return torch.zeros(len(image))
        with self._runtime.autocast():
            pairs = zip(self._features(composite), self._features(image), strict=True)
            return torch.stack([(a - b).float().square().sum(1).mean((1, 2)) for a, b in pairs]).sum(0)

    @torch.no_grad()
    def _fill_pictures(self, cache: PictureCache, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return pictures first to last - 1 filled by the averaged net, the originals, and their fixed holes."""
        device, side = self._runtime.device, self._config.data.crop
        image = self._in_memory_layout(cache.crops(centre_crops(first, last, device), side))
        random = generator_for(torch.device("cpu"), self._config.seed, first, Purpose.PREVIEW)
        hole = make_holes(*draw_numbers(last - first, random), side, self._config.coverage).to(device)
        with self._runtime.autocast():
            output = cast("FillUNet", self._average.net)(image, hole)
        return torch.where(hole > 0, output.clamp(0, 1), image), image, hole
