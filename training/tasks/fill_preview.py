"""Fills of held-out pictures during a run of FillNet, and their figures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.data.cuts import centre_crops
from training.data.device_cache import PictureCache
from training.data.holes import draw_numbers, make_holes
from training.fill_config import FillConfig
from training.loop.runtime import Runtime
from training.loop.sheets import mean_psnr_db
from training.losses.grid import grid_unevenness, sum_contrasts
from training.losses.vgg16 import NormalisedFeatures, squared_gaps
from training.seeds import Purpose, generator_for

_AT_ONCE = 16
_SHALLOW = 3
"""Blocks of VGG16 in the measured distance: always these, whatever the run's loss uses, so that runs are comparable."""
_DEEP_DISTANCE = "validation_deep_distance"
_DISTANCE = "validation_distance"
_STOPPING = (_DISTANCE, "validation_grid_rows", "validation_grid_columns")
_MAX_RATIO = 1.05
"""A run ends if its distance exceeds this multiple of that at its start, even if its grid is weaker. The distance of
photos/5, which began with random weights, was 1.036 times its final one after 4,000 of 25,420 steps."""


class FillPreview:
    """Fills fixed holes, and keeps the figures of the run's start and the latest ones."""

    def __init__(
        self, config: FillConfig, runtime: Runtime, held_out: PictureCache | None, features: NormalisedFeatures | None
    ) -> None:
        self._config, self._runtime, self._held_out, self._features = config, runtime, held_out, features
        self._start: dict[str, float] = {}
        self._latest: dict[str, float] = {}

    def state(self) -> dict[str, Any]:
        """Return the figures that `reason_to_stop` compares, for `load`."""
        return {"start": self._start, "latest": self._latest}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned, in the leading process only: the others never measure."""
        if self._runtime.is_leader:
            self._start, self._latest = state["start"], state["latest"]

    def measure_start(self, net: nn.Module) -> dict[str, float]:
        """Measure the net that the run starts from."""
        self._start = self.measure(net)
        return self._start

    def measure(self, net: nn.Module) -> dict[str, float]:
        """Measure PSNR, the distance in VGG16's features and the grid; empty without held-out pictures."""
        cache = self._held_out
        if cache is None:
            return {}
        pairs, distances, contrasts = [], [], []
        for first in range(0, cache.count, _AT_ONCE):
            composite, image, hole = self.fill(net, cache, first, min(first + _AT_ONCE, cache.count))
            pairs.append((composite, image))
            distances.append(self._feature_distance(composite, image))
            contrasts.append(sum_contrasts(composite, hole))
        of_blocks = torch.cat(distances).mean(0)
        rows, columns = grid_unevenness(torch.stack(contrasts).sum(0))
        self._latest = {
            "validation_psnr_db": mean_psnr_db(pairs),
            _DISTANCE: float(of_blocks[:_SHALLOW].sum()),
            "validation_grid_rows": rows,
            "validation_grid_columns": columns,
        }
        if len(of_blocks) > _SHALLOW:
            self._latest[_DEEP_DISTANCE] = float(of_blocks[_SHALLOW:].sum())
        return self._latest

    def reason_to_stop(self, steps: int) -> str | None:
        """Return why the run should end after `steps` steps; None if it should go on.

        It ends if distance and grid are worse than at its start, or if the distance alone is much larger.
        """
        start, latest = self._start, self._latest
        if not start or not latest:
            return None
        if latest[_DISTANCE] > _MAX_RATIO * start[_DISTANCE]:
            return (
                f"after stop_after {steps} steps {_DISTANCE} {latest[_DISTANCE]:.3f} is more than {_MAX_RATIO} "
                f"times that of `initial`, {start[_DISTANCE]:.3f}"
            )
        if any(latest[name] <= start[name] for name in _STOPPING):
            return None
        return f"after stop_after {steps} steps {', '.join(_STOPPING)} are above those of `initial`"

    @torch.no_grad()
    def _feature_distance(self, composite: Tensor, image: Tensor) -> Tensor:
        """Return the squared distance in VGG16's features by block: N×blocks."""
        if self._features is None:
            return torch.zeros(len(image), _SHALLOW)
        with self._runtime.autocast():
            gaps = squared_gaps(self._features(composite), self._features(image))
            return torch.stack([gap.mean((1, 2)) for gap in gaps], 1)

    @torch.no_grad()
    def fill(self, net: nn.Module, cache: PictureCache, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return pictures first to last - 1 filled by a net, the originals, and their fixed holes."""
        device, side = self._runtime.device, self._config.data.crop
        image = cache.crops(centre_crops(first, last, device), side).contiguous(memory_format=self._runtime.layout)
        random = generator_for(torch.device("cpu"), self._config.seed, first, Purpose.PREVIEW)
        hole = make_holes(*draw_numbers(last - first, random), side, self._config.coverage).to(device)
        with self._runtime.autocast():
            output = net(image, hole)
        return torch.where(hole > 0, output.clamp(0, 1), image), image, hole
