"""What the server needs of whatever computes: models to lease, and one `submit`.

`EngineRoom` is one in this process; service/processes has one whose engines are in others. The pipeline cannot tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.admission.admission import House
from service.core.flow import ANYONE, Flow
from service.core.samples import Computed, Sample
from service.core.settings import Settings
from service.telemetry.metrics import Metrics


class RunsOn(Protocol):
    """What is told of the engine that a model runs on."""

    @property
    def name(self) -> str: ...
    @property
    def precision(self) -> str: ...


class Leased(Protocol):
    """A model that can be used until its lease ends."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def engine(self) -> RunsOn: ...


class Models(Protocol):
    """The models that are served: see `ModelRepository`, which is one."""

    def lease(self, name: str, version: int | None = None) -> AbstractContextManager[Leased]: ...
    def statuses(self) -> Sequence[ModelStatus]: ...


class Submits(Protocol):
    """The seam between requests and whatever computes them: see `Batcher`, which is one."""

    async def submit(
        self,
        sample: Sample,
        model: Any,
        deadline: float,
        on_begun: Callable[[], None] | None = None,
        flow: Flow = ANYONE,
        *,
        traced: bool = False,
    ) -> Computed:
        """The tile of one sample; `model` is what `Models.lease` of the same room gave.

        `traced`: its batch is to have a span.
        """

    def close(self) -> None:
        """Answer everyone who still waits with ShuttingDown, and everyone who comes."""


class Room(Protocol):
    """What the server needs of whatever computes."""

    @property
    def models(self) -> Models: ...
    @property
    def batcher(self) -> Submits: ...
    @property
    def loaded(self) -> asyncio.Event:
        """Set once the models are known for the first time."""

    @property
    def house(self) -> House:
        """Who else asks it."""

    @property
    def lost(self) -> asyncio.Event:
        """Set when this process has lost its device and must end."""

    @property
    def ready(self) -> bool:
        """Whether a device worker is alive and its batch not overdue."""


OpenRoom = Callable[[Settings, Metrics], AbstractAsyncContextManager[Room]]
"""The room is open as long as the block lasts; models may still be loading when it begins."""
