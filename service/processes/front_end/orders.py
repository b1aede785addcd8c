"""Models that engine processes offer, and the messages that submit samples for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.core.batch_rows import Sample
from service.core.flow import Flow
from service.processes.shared.messages import Status, Submit
from service.processes.shared.slots import Slot, SlotLayouts


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Name and precision of a model's engine."""

    name: str
    precision: str


@dataclass(slots=True, eq=False)
class RemoteModel:
    """A model that an engine process offers; it is released when it is no longer offered and has no users.

    lease: the engine process's number for the model.
    users: number of this front end's leases of the model.
    """

    lease: int
    manifest: Manifest
    engine: EngineFacts
    layouts: SlotLayouts
    users: int = 0
    offered: bool = True


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """A sample to compute, with the arguments of `submit`."""

    sample: Sample
    deadline: float
    on_begun: Callable[[], None] | None
    flow: Flow
    traced: bool = False


def submit_message(number: int, model: RemoteModel, slot: Slot, order: SampleOrder) -> Submit:
    """Return the message that submits the sample in a slot."""
    height, width = order.sample.tile
    return Submit(
        number,
        model.lease,
        slot.offset,
        height,
        width,
        order.sample.samples,
        order.deadline,
        order.on_begun is not None,
        order.flow.client,
        order.flow.priority,
        order.traced,
    )


def decode_status(status: Status, manifests: Mapping[tuple[str, int], Manifest]) -> ModelStatus:
    """Decode the status of a model from an engine process; `manifests`: by name and version."""
    return ModelStatus(
        status.name,
        status.version,
        status.state,  # type: ignore[arg-type] # a `State`, as the repository wrote it
        manifests.get((status.name, status.version)),
        status.reason,
        status.engine,
        status.precision,
        status.device,
    )
