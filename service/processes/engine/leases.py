"""Which models an engine process offers to its front ends, each under a number, and for how long.

A front end prepares a request for a model before it submits it. So a model that is replaced stays open until every
front end that was told of it has let go of it: in another process as in one, no request finds its model closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from engines.errors import RetouchError
from engines.repository.listing import Key
from engines.repository.repository import ModelRepository
from engines.repository.versions import ModelStatus, ServedModel
from service.processes.shared.messages import Offer, Served, Status
from service.processes.shared.slots import SlotLayouts


class Lease(NamedTuple):
    """A model that stays open until the stack is closed."""

    key: Key
    served: ServedModel
    stack: ExitStack


@dataclass(slots=True, eq=False)
class Offered:
    """A model that front ends may submit for."""

    number: int
    lease: Lease
    layouts: SlotLayouts
    told: set[int] = field(default_factory=set)
    """The front ends that may still use it."""
    retired: bool = False


class Offers:
    """The book of offers. Used on the event loop, but for `lease_ready`, which may block."""

    def __init__(self, models: ModelRepository) -> None:
        self._models = models
        self._offered: dict[int, Offered] = {}
        self._current: dict[Key, Offered] = {}
        self._front_ends: set[int] = set()
        self._number = 0

    def find(self, number: int) -> Offered | None:
        """What is offered under that number; None when everyone has let go of it."""
        return self._offered.get(number)

    def offers(self, name: str, version: int) -> bool:
        """Whether that version is offered now."""
        return Key(name, version) in self._current

    def lease_ready(self) -> list[Lease]:
        """A lease of each model that is ready now; not on the event loop."""
        leases = []
        for status in self._models.statuses():
            if status.state == "ready":
                stack = ExitStack()
                try:
                    served = stack.enter_context(self._models.lease(status.name, status.version))
                except RetouchError:  # it went in this moment; the next look decides
                    continue
                leases.append(Lease(Key(status.name, status.version), served, stack))
        return leases

    def renew(self, leases: Iterable[Lease]) -> None:
        """Offer these models and no others; what is not among them is kept until it is let go of."""
        before, self._current = self._current, {}
        for lease in leases:
            known = before.pop(lease.key, None)
            if known is not None and known.lease.served.current is lease.served:
                known.lease.stack.close()
                known.lease = lease  # an engine that took another's place
                self._current[lease.key] = known
            else:
                if known is not None:
                    self._retire(known)
                self._number += 1
                offered = Offered(self._number, lease, SlotLayouts(lease.served.manifest), set(self._front_ends))
                self._current[lease.key] = self._offered[self._number] = offered
        for known in before.values():
            self._retire(known)

    def arrived(self, front_end: int) -> None:
        """It is told of all that is current, from now on."""
        self._front_ends.add(front_end)
        for offered in self._current.values():
            offered.told.add(front_end)

    def left(self, front_end: int) -> None:
        """It will not use anything any more."""
        self._front_ends.discard(front_end)
        for offered in list(self._offered.values()):
            self._let_go(offered, front_end)

    def let_go(self, front_end: int, number: int) -> None:
        """It will not use that one any more."""
        if (offered := self._offered.get(number)) is not None:
            self._let_go(offered, front_end)

    def served(self) -> Served:
        """What front ends are told."""
        current = [
            Offer(offered.number, key.name, key.version, engine.name, engine.precision)
            for key, offered in self._current.items()
            for engine in [offered.lease.served.engine]
        ]
        return Served(current, [_told(status) for status in self._models.statuses()])

    def close(self) -> None:
        """End all leases."""
        for offered in self._offered.values():
            offered.lease.stack.close()
        self._offered.clear()
        self._current.clear()

    def _retire(self, offered: Offered) -> None:
        offered.retired = True
        self._forget_unused(offered)

    def _let_go(self, offered: Offered, front_end: int) -> None:
        offered.told.discard(front_end)
        self._forget_unused(offered)

    def _forget_unused(self, offered: Offered) -> None:
        if offered.retired and not offered.told and self._offered.pop(offered.number, None) is not None:
            offered.lease.stack.close()


def _told(status: ModelStatus) -> Status:
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
