"""Interface of the backend, which computes samples: models to lease, and `submit`.

`LocalBackend` computes in this process, service/processes in engine processes; the pipeline works with either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.admission.server_load import ServerLoad
from service.core.batch_rows import ComputedSample, Sample
from service.core.flow import ANYONE, Flow
from service.core.settings import Settings
from service.telemetry.metrics import Metrics


class EngineDescription(Protocol):
    """Name and precision of the engine that a model runs on."""

    @property
    def name(self) -> str: ...
    @property
    def precision(self) -> str: ...


class BackendModel(Protocol):
    """A model with its engine, usable until its lease ends."""

    @property
    def manifest(self) -> Manifest: ...
    @property
    def engine(self) -> EngineDescription: ...


class BackendModels(Protocol):
    """The models that are served; `ModelRepository` is one implementation."""

    def lease(self, name: str, version: int | None = None) -> AbstractContextManager[BackendModel]: ...
    def statuses(self) -> Sequence[ModelStatus]: ...


class SampleQueue(Protocol):
    """A queue that computes samples; `Batcher` is one implementation."""

    async def submit(
        self,
        sample: Sample,
        model: Any,
        deadline: float,
        on_begun: Callable[[], None] | None = None,
        flow: Flow = ANYONE,
        *,
        traced: bool = False,
    ) -> ComputedSample:
        """Compute the tile of one sample with a model leased from the same backend; see `Batcher.submit`."""

    def close(self) -> None:
        """Fail the samples that wait, and all later ones, with ShuttingDown."""


class Backend(Protocol):
    """Models, and the queue that computes samples with them."""

    @property
    def models(self) -> BackendModels: ...
    @property
    def batcher(self) -> SampleQueue: ...
    @property
    def loaded(self) -> asyncio.Event:
        """Set when the models have been loaded for the first time."""

    @property
    def loading(self) -> str:
        """Name and progress of the model that is being loaded, for people; empty while none is loading."""

    @property
    def server_load(self) -> ServerLoad:
        """Requests of other front ends that use the same backend."""

    @property
    def lost(self) -> asyncio.Event:
        """Set when this process has lost its device and must end."""

    @property
    def ready(self) -> bool:
        """Whether a device worker is alive and no batch overdue."""


OpenBackend = Callable[[Settings, Metrics], AbstractAsyncContextManager[Backend]]
"""Opens a backend for the length of a `with` block; models may still be loading when the block begins."""
