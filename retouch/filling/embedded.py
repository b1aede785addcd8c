"""Makes pictures in this process through the service's pipeline, without a server.

Import it only when needed: it loads numpy, the engines and the whole service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from engines.validation import validation_message
from retouch.client.options import Task
from retouch.filling.filler import FillResult
from service.admission.deadline import await_with_deadline
from service.app import open_pipeline
from service.batching.local_backend import open_local_backend
from service.core.call import Call
from service.core.errors import InvalidOption
from service.core.order import Order
from service.core.reply import Reply
from service.core.schemas import OPTIONS
from service.core.settings import SettingsInvalid, load_settings
from service.pipeline import Pipeline
from service.telemetry.logs import configure_logs

OptionsT = TypeVar("OptionsT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class EmbeddedFiller:
    """Makes pictures with a pipeline of this process; `new_id` makes the ids of calls in the logs."""

    pipeline: Pipeline
    timeout_s: float
    new_id: Callable[[], str]

    async def fill(self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str]) -> FillResult:
        """Make the pictures of one request; see `retouch.filling.filler.Filler`.

        Raises:
            DeadlineExceeded: it took longer than `timeout_s`.
            ServiceError: as `Pipeline.run`.
        """
        reply = await self._run_order(task, parts, {**options, "save": "false"})
        return FillResult(tuple(picture.body for picture in reply.pictures), reply.model, reply.engine)

    async def _run_order(self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str]) -> Reply:
        now = self.pipeline.clock()
        call = Call(self.new_id(), now, now + self.timeout_s)
        order = Order(task, parts, _validated_options(OPTIONS[task], options))
        return await await_with_deadline(self.pipeline.run(order, call), self.timeout_s)


@asynccontextmanager
async def open_embedded_filler(
    flags: Mapping[str, Any], task: Task, model: str | None, *, timeout_s: float
) -> AsyncIterator[EmbeddedFiller]:
    """Open a filler with only the needed model loaded.

    Args:
        flags: settings by name; the others come from the environment and the defaults.
        task: the task of the requests.
        model: NAME or NAME/VERSION; None for the task's default.
        timeout_s: the time limit of one picture.

    Raises:
        SettingsInvalid: a setting is unknown or out of range, or the task has no model.
    """
    with TemporaryDirectory(prefix="retouch-") as unused:
        settings = load_settings({"log_level": "warning", **flags, "save": False, "results_dir": Path(unused)})
        configure_logs(settings)
        if not (reference := model or settings.default_models[task]):
            variable = f"RETOUCH_{task.upper()}_MODEL"
            raise SettingsInvalid(f"no model is chosen: name one with --model, or set {variable} to one")
        name, _, _ = reference.partition("/")
        open_backend = partial(open_local_backend, only={name}, warm_up=False)  # a warm-up costs more than one picture
        async with open_pipeline(settings, open_backend) as pipeline:
            yield EmbeddedFiller(pipeline, timeout_s, lambda: uuid4().hex)


def _validated_options(model: type[OptionsT], options: Mapping[str, str]) -> OptionsT:
    try:
        return model.model_validate(options)
    except ValidationError as error:
        raise InvalidOption(validation_message(error, "option", model.model_fields)) from error
