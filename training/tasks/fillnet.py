"""Adversarial training of FillNet with its judges: batches, losses, updates of all nets, samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch._functorch.config
from torch import Tensor

from export.generators.family import State
from training.data.arrivals import ShardWatcher
from training.data.cuts import draw_crops
from training.data.device_cache import PictureCache
from training.data.holes import draw_box_numbers, draw_numbers, make_holes, make_thick_boxes
from training.data.pictures import load_pictures, validation_pictures
from training.fill_config import FillConfig, FillPhase
from training.loop.balance import LossBalancer, Measurement
from training.loop.replay import NetUpdate, Rate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.sheets import arrange_sheet
from training.loop.trainee import Trainee
from training.loop.updates import OptimiserUpdates, UpdateSettings, WeightAverage
from training.losses.picture_views import ViewIndices, half_size_and_cut, roll_picture, view_indices
from training.losses.vgg16 import FeatureDistance, NormalisedFeatures, load_features
from training.nets.fillnet import checkpoint_state, make_net, training_state
from training.seeds import Purpose, generator_for
from training.tasks.fill_judge import ADVERSARIAL, JudgedBatch, judge_section, make_judges
from training.tasks.fill_preview import FillPreview
from training.weights.initial import load_initial

_CLIP = 200.0
"""Norm to which the net's gradients are clipped; only spikes exceed it."""
_BIAS_RATE = 0.3
_CHECK_EVERY = 20
"""Steps between checks for compiled code and broken shards; a check synchronises the processes."""
_DECAY = 0.9
"""Decay of the moving average of the accuracy of the judge of small patches."""


class _Kind(NamedTuple):
    """The properties that steps share if they can be replayed from one recording."""

    side: int
    """Side of the crops."""
    alone: bool
    """Whether only the judges learn."""
    measurement: Measurement
    penalised: tuple[bool, ...]
    """Whether R1 is computed, for each judge."""


class _CompiledParts(NamedTuple):
    """The functions that can be compiled."""

    paint: Callable[[Tensor, Tensor], Tensor]
    features: Callable[[Tensor], list[Tensor]] | None
    distance: Callable[[Tensor, list[Tensor]], Tensor] | None
    make_holes: Callable[..., Tensor]
    make_boxes: Callable[[Tensor, int], Tensor]


def _perceptual_features(config: FillConfig) -> NormalisedFeatures | None:
    if config.features is None or not config.shares.perceptual:
        return None
    return NormalisedFeatures(load_features(config.features, len(config.layers)))


class FillTrainee(Trainee[FillPhase]):
    """FillNet and its judges with their data, losses and optimisers."""

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
        self.net = make_net(config.generator, random)
        self._features = _perceptual_features(config)
        self.judges = make_judges(config, runtime, self._features, random)
        if config.initial is not None:
            load_initial(self.net, config.initial, training_state)
        distance = FeatureDistance(self._features, config.layers) if self._features else None
        for net in (self.net, *([self._features] if self._features else [])):
            runtime.move_to_device(net)
        self._preview = FillPreview(config, runtime, self._validation, self._features)
        self._updates = OptimiserUpdates(self.net, config, runtime, UpdateSettings(config.betas, _CLIP, _BIAS_RATE))
        self._average = WeightAverage(self.net, config.ema_decay)
        self._balancer = LossBalancer(config.shares.model_dump(), runtime)
        self._eager = _CompiledParts(self.net, self._features, distance, make_holes, make_thick_boxes)
        self._parts = self._eager
        self.compiled = False
        self._accuracy = torch.full((), 0.5, device=device)
        self._recorder = runtime.recorder(wanted=config.cuda_graphs)
        self._replayed = dict[_Kind, NetUpdate]()

    def begin_phase(self, phase: FillPhase) -> None:
        self._parts, self.compiled = self._eager, False
        self._replayed.clear()
        for judge in self.judges.values():
            judge.compile(wanted=False)
        self._compile(phase)

    @property
    def _settled(self) -> bool:
        """Whether steps run their final code: compiled, or eager if nothing is to be compiled."""
        return self.compiled or not self._runtime.compiles(self._config.compile)

    def _compile(self, phase: FillPhase) -> None:
        """Switch to compiled code if configured; with `compile_after`, once that file exists for all processes."""
        if self.compiled or not self._runtime.compiles(self._config.compile):
            return
        if phase.compile_after and self._runtime.any_process(not phase.compile_after.exists()):
            return
        torch._functorch.config.donated_buffer = False  # noqa: SLF001 (no other way): gradients are taken several times
        torch._dynamo.config.recompile_limit = 64  # noqa: SLF001 (sizes, with and without gradients)
        made: list[Any] = [torch.compile(part, dynamic=False) if part else None for part in self._eager]
        self._parts, self.compiled = _CompiledParts(*made), True
        for judge in self.judges.values():
            judge.compile(wanted=True)

    def step(self, number: int, position: StepPosition[FillPhase]) -> dict[str, Tensor]:
        if number % _CHECK_EVERY == 0:
            self._compile(position.phase)
            if self._arrivals:
                self._arrivals.raise_failure()
        image, hole = self.batch(number, position)
        kind = _Kind(
            image.shape[-1],
            number < self._config.judge.alone,
            self._balancer.measurement(number),
            tuple(judge.is_penalised(number) for judge in self.judges.values()),
        )
        views, shares = self._draw_views(number, image.shape[-1]), self._balancer.shares(self._ramps(number))
        terms = self._update_of(kind)(position.learning_rate, image, hole, *views, shares)
        self._average.update()
        if "patches_accuracy" in terms and kind.alone:
            self._runtime.average_over_processes(
                [terms["patches_accuracy"]]
            )  # so that either all processes stop or none
            self._accuracy = self._accuracy.lerp(terms["patches_accuracy"], 1 - _DECAY)
        return terms

    def _update_of(self, kind: _Kind) -> NetUpdate:
        """Return the update of steps of a kind: replayed, if configured, once code is compiled and norms are known."""
        update = partial(self._update_nets, kind)
        recorder = None if kind.measurement == "anew" or not self._settled else self._recorder
        if recorder is None:
            return update
        if kind not in self._replayed:
            self._replayed[kind] = self._runtime.replay(update, recorder)
        return self._replayed[kind]

    def _update_nets(
        self, kind: _Kind, rate: Rate, image: Tensor, hole: Tensor, *views_and_shares: Tensor
    ) -> dict[str, Tensor]:
        """Update the net and its judges with pictures, holes, the indices of their views and the losses' shares."""
        *indices, shares = views_and_shares
        views = ViewIndices(*indices)
        with self._runtime.autocast():
            output = self._parts.paint(image, hole)
        composite = torch.where(hole > 0, output, image)
        shown = composite.detach().requires_grad_()
        batch = JudgedBatch(self._rolled(image, hole, views), self._rolled(shown, hole, views), image, hole)
        losses = self._compute_losses(shown, batch, views)
        gradient = self._balancer.gradient(losses, shown, shares, kind.measurement)
        self._updates.apply(composite, rate, gradient, hold=kind.alone)
        judged = self._update_judges(kind, rate, batch._replace(filled=batch.filled.detach()))
        return {name: value.detach() for name, value in (losses | judged).items()}

    def _ramps(self, number: int) -> dict[str, float]:
        """Return the factors of the judges' losses in a step: 0 while only the judges learn."""
        first, last = self._config.judge.ramp
        ramp = min(1.0, max(0.0, (number - first) / (last - first)))
        active = 1.0 if number >= self._config.judge.alone else 0.0
        return {"matching": active} | dict.fromkeys(self.judges, ramp * active)

    def _draw_views(self, number: int, side: int) -> ViewIndices:
        """Draw the position of VGG16's cut and the roll of the discriminator's input; the same in all processes."""
        random = generator_for(torch.device("cpu"), self._config.seed, number, Purpose.VIEWS)
        top, left = torch.randint(side // 2 + 1, (2,), generator=random).tolist()
        down, right = torch.randint(self._config.judge.shift, (2,), generator=random).tolist()
        return view_indices(side, (down, right), (top, left), self._runtime.device)

    def _rolled(self, picture: Tensor, hole: Tensor, views: ViewIndices) -> Tensor:
        """Return pictures with their holes as judges see them, N×4×H×W."""
        return self._in_memory_layout(roll_picture(torch.cat([picture, hole], 1), views))

    def _compute_losses(self, shown: Tensor, batch: JudgedBatch, views: ViewIndices) -> dict[str, Tensor]:
        """Compute the losses with a share, unweighted; `shown` is the filled picture, a leaf, not rolled."""
        image, hole = batch.image, batch.hole
        losses = {"difference": (shown - image).abs().sum() / (hole.sum() * image.shape[1]).clamp(min=1)}
        if self._parts.features is not None and self._parts.distance is not None:
            with torch.no_grad(), self._runtime.autocast():
                wanted = self._parts.features(self._in_memory_layout(half_size_and_cut(image, views)))
            with self._runtime.autocast():
                seen = self._in_memory_layout(half_size_and_cut(shown, views))
                losses["perceptual"] = self._parts.distance(seen, wanted)
        for name, judge in self.judges.items():
            judge.freeze()
            if name == ADVERSARIAL:
                with torch.no_grad():
                    real = judge.rate(batch.real)
                losses[name], losses["matching"] = judge.generator_losses(batch.filled, real.features)
            else:
                (losses[name],) = judge.generator_losses(batch.filled)
        return losses

    def _in_memory_layout(self, picture: Tensor) -> Tensor:
        return picture.contiguous(memory_format=self._runtime.layout)

    def _update_judges(self, kind: _Kind, rate: Rate, batch: JudgedBatch) -> dict[str, Tensor]:
        found = dict[str, Tensor]()
        for (name, judge), penalised in zip(self.judges.items(), kind.penalised, strict=True):
            prefix = "" if name == ADVERSARIAL else f"{name}_"
            found[f"{prefix}judge"], found[f"{prefix}accuracy"] = judge.learn(rate, batch, penalised=penalised)
        return found

    def batch(self, number: int, position: StepPosition[FillPhase]) -> tuple[Tensor, Tensor]:
        """Return this process's pictures and holes for a step."""
        seed, device, count = self._config.seed, self._runtime.device, position.phase.batch
        first, last = self._runtime.samples_of_process(count)
        side = position.phase.side(number, self._config.data.crop)
        order = generator_for(device, seed, number, Purpose.ORDER)  # not of a pass: more pictures may arrive
        numbers = torch.randint(self._pictures.count, (count,), generator=order, device=device)
        cuts = draw_crops(self._config.data, numbers, generator_for(device, seed, number, Purpose.CROPS))
        image = self._in_memory_layout(self._pictures.crops(cuts.samples_between(first, last), side))
        random = generator_for(device, seed, number, Purpose.MASKS)
        uniform, normal = draw_numbers(count, random)
        hole = self._parts.make_holes(uniform[first:last], normal[first:last], side, self._config.coverage)
        if self._config.thick:
            thick = torch.rand(count, 1, 1, 1, generator=random, device=device) < self._config.thick
            numbers = draw_box_numbers(count, random)[:, first:last].contiguous()  # for compiled code
            boxes = self._parts.make_boxes(numbers, side)
            hole = torch.where(thick[first:last], boxes, hole)
        return image, self._in_memory_layout(hole)

    def state(self) -> dict[str, Any]:
        known = {
            "net": self.net.state_dict(),
            "updates": self._updates.state(),
            "average": self._average.state(),
            "balancer": self._balancer.state(),
            "accuracy": self._accuracy,
            "preview": self._preview.state(),
        }
        return known | {judge_section(name): judge.state() for name, judge in self.judges.items()}

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._updates.load(state["updates"])
        self._average.load(state["average"])
        for name, judge in self.judges.items():
            judge.load(state[judge_section(name)])
        self._balancer.load(state["balancer"])
        self._preview.load(state["preview"])
        name = "accuracy" if "accuracy" in state else "told"  # "told" in checkpoints of earlier versions
        self._accuracy = state[name].to(self._accuracy)

    def generator_state(self) -> State:
        return checkpoint_state(self._average.net)

    def sheet(self) -> Tensor:
        cache = self._validation or self._pictures
        last = min(self._config.sheet_pictures, cache.count)
        composite, image, hole = self._preview.fill(self._average.net, cache, 0, last)
        return arrange_sheet([torch.where(hole > 0, 0.5, image), composite, image])

    def validate_start(self) -> dict[str, float]:
        return self._preview.measure_start(self._average.net)

    def validate(self) -> dict[str, float]:
        return self._preview.measure(self._average.net)

    def reason_to_stop(self, done: int) -> str | None:
        config = self._config
        least = config.patches.min_accuracy if config.patches and done > config.judge.alone else None
        if least is not None and (accuracy := float(self._accuracy)) < least:
            return (
                f"the judge of small patches has an accuracy of {accuracy:.3f}, below patches.min_accuracy {least}: "
                "its loss would push the net without a direction"
            )
        after = config.stop_after
        return self._preview.reason_to_stop(after) if after and done >= after else None
