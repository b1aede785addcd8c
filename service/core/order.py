"""What a client asked for, in a form that can be kept: a task, its files, its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.manifest import Task
from service.core.items import Call, Reply
from service.core.schemas import InpaintOptions, Options, TranslateOptions
from service.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Order:
    """One request's content. files: by part name."""

    task: Task
    files: Mapping[str, bytes]
    options: Options

    async def fulfil(self, pipeline: Pipeline, call: Call) -> Reply:
        """The finished pictures. Raises as `Pipeline.inpaint`."""
        files, options = self.files, self.options
        if isinstance(options, InpaintOptions):
            return await pipeline.inpaint(files["image"], files["mask"], options, call)
        if isinstance(options, TranslateOptions):
            others = {name: data for name, data in files.items() if name != "image"}
            return await pipeline.translate(files["image"], options, call, others)
        return await pipeline.generate(options, call)
