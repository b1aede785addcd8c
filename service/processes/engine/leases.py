"""Models that an engine process offers to its front ends, each under a number.

A front end prepares a request for a particular model before it submits the request. Therefore a replaced model stays
loaded until every front end to which it was announced has released it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from engines.errors import RetouchError
from engines.repository.listing import VersionKey
from engines.repository.repository import ModelRepository
from engines.repository.versions import ModelStatus, ServedModel
from service.processes.shared.messages import Offer, Served, Status
from service.processes.shared.slots import SlotLayouts


class ModelLease(NamedTuple):
    """A lease of a model in the repository, held until the stack is closed."""

    key: VersionKey
    served: ServedModel
    stack: ExitStack


@dataclass(slots=True, eq=False)
class OfferedModel:
    """A model for which front ends may submit samples."""

    number: int
    lease: ModelLease
    layouts: SlotLayouts
    announced_to: set[int] = field(default_factory=set)
    """The front ends that may still use the model."""
    retired: bool = False
    """Whether the model is no longer offered."""


class ModelOffers:
    """Offered models and the front ends that use them. Used on the event loop, except `lease_ready`."""

    def __init__(self, models: ModelRepository) -> None:
        self._models = models
        self._offered: dict[int, OfferedModel] = {}
        self._current: dict[VersionKey, OfferedModel] = {}
        self._front_ends: set[int] = set()
        self._number = 0

    def find(self, number: int) -> OfferedModel | None:
        """Return the model with that number; None if it was removed because all front ends have released it."""
        return self._offered.get(number)

    def lease_ready(self) -> list[ModelLease]:
        """Lease each model that is ready now. Blocks."""
        leases = []
        for status in self._models.statuses():
            if status.state == "ready":
                stack = ExitStack()
                try:
                    served = stack.enter_context(self._models.lease(status.name, status.version))
                except RetouchError:  # unloaded just now; the next renewal will retire it
                    continue
                leases.append(ModelLease(VersionKey(status.name, status.version), served, stack))
        return leases

    def replace_offers(self, leases: Iterable[ModelLease]) -> None:
        """Offer exactly these models; retire the others, whose leases end when all front ends have released them."""
        before, self._current = self._current, {}
        for lease in leases:
            known = before.pop(lease.key, None)
            if known is not None and known.lease.served.current is lease.served:
                known.lease.stack.close()
                known.lease = lease  # the same model; its engine may have been replaced
                self._current[lease.key] = known
            else:
                if known is not None:
                    self._retire(known)
                self._number += 1
                offered = OfferedModel(self._number, lease, SlotLayouts(lease.served.manifest), set(self._front_ends))
                self._current[lease.key] = self._offered[self._number] = offered
        for known in before.values():
            self._retire(known)

    def add_front_end(self, front_end: int) -> None:
        """Add a front end, to which all current models are announced."""
        self._front_ends.add(front_end)
        for offered in self._current.values():
            offered.announced_to.add(front_end)

    def remove_front_end(self, front_end: int) -> None:
        """Remove a front end and release all its models."""
        self._front_ends.discard(front_end)
        for offered in list(self._offered.values()):
            self._release_offer(offered, front_end)

    def release(self, front_end: int, number: int) -> None:
        """Release a model for a front end."""
        if (offered := self._offered.get(number)) is not None:
            self._release_offer(offered, front_end)

    def served_message(self) -> Served:
        """Return the message that announces all models to front ends."""
        current = [
            Offer(offered.number, key.name, key.version, engine.name, engine.precision)
            for key, offered in self._current.items()
            for engine in [offered.lease.served.engine]
        ]
        return Served(current, [_encode_status(status) for status in self._models.statuses()])

    def close(self) -> None:
        """End all leases."""
        for offered in self._offered.values():
            offered.lease.stack.close()
        self._offered.clear()
        self._current.clear()

    def _retire(self, offered: OfferedModel) -> None:
        offered.retired = True
        self._remove_if_unused(offered)

    def _release_offer(self, offered: OfferedModel, front_end: int) -> None:
        offered.announced_to.discard(front_end)
        self._remove_if_unused(offered)

    def _remove_if_unused(self, offered: OfferedModel) -> None:
        if offered.retired and not offered.announced_to and self._offered.pop(offered.number, None) is not None:
            offered.lease.stack.close()


def _encode_status(status: ModelStatus) -> Status:
    return Status(
        status.name,
        status.version,
        status.state,
        None if status.manifest is None else status.manifest.model_dump_json(),
        status.reason,
        status.engine,
        status.precision,
        status.device,
    )
