"""The texture stage behind a net, as a painter that an evaluation measures."""

from __future__ import annotations

import time

from service.core.pictures import Picture
from service.imaging.texture.parameters import Parameters
from service.imaging.texture.patch_match import Kernel
from service.imaging.texture.windows import copy_texture, plan_texture
from training.evaluate.cases import Case, Pixels
from training.evaluate.painters import Painter


class TexturePainter(Painter):
    """Adds texture to the result of a net. `seconds` has the CPU time of the texture stage alone, by case."""

    label = "texture"

    def __init__(self, net: Painter, kernel: Kernel, parameters: Parameters) -> None:
        self._net, self._kernel, self._parameters = net, kernel, parameters
        self.seconds: list[float] = []

    def paint(self, case: Case) -> Pixels:
        fill = self._net.paint(case)
        if case.hole is None:
            return fill
        painted = fill.copy()
        started = time.process_time()
        copy_texture(Picture(painted), plan_texture(case.hole), self._kernel, self._parameters)
        self.seconds.append(time.process_time() - started)
        return painted

    def close(self) -> None:
        """Do nothing: the caller closes the net."""
