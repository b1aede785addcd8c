"""A client's request in a form that can be stored: a task, its files, its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from engines.manifest import Task
from service.core.pictures import ImageFormat
from service.core.schemas import InpaintOptions, Options

OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True)
class Order:
    """The task, files and options of one request.

    files: by part name.
    options: of the class that `schemas.OPTIONS` names for the task.
    own_seeds: whether each of several results is that of the next seed, instead of another one of the same seed. Not
        for jobs, as it is not stored.
    """

    task: Task
    files: Mapping[str, bytes]
    options: Options
    own_seeds: bool = False

    @property
    def format(self) -> ImageFormat:
        """The format of the reply."""
        return self.options.format or "png"

    def seed_and_sample(self, seed: int, index: int) -> tuple[int, int]:
        """Return the seed and the index with which the random numbers of a result are drawn.

        Args:
            seed: the seed of the first result.
            index: the index of the result, from 0.
        """
        return (seed + index, 0) if self.own_seeds else (seed, index)

    def is_saved(self, default: bool) -> bool:
        """Return whether the result is stored; `default` if the client does not say."""
        return default if self.options.save is None else self.options.save

    @property
    def wants_texture(self) -> bool:
        """Whether the fill is to get texture that is copied from the picture."""
        return isinstance(self.options, InpaintOptions) and self.options.texture == "copied"

    def options_to_store(self) -> dict[str, object]:
        """Return the options as JSON values; new options at their defaults are left out, for earlier versions."""
        return self.options.model_dump(mode="json", exclude_none=True, exclude=self.options.added_at_default)

    def options_as(self, kind: type[OptionsT]) -> OptionsT:
        """Return the options, checked to be of class `kind`.

        Raises:
            TypeError: the options are of another task.
        """
        if not isinstance(self.options, kind):
            raise TypeError(f"a {self.task} order has {kind.__name__}, not {type(self.options).__name__}")
        return self.options
