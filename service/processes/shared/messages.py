"""What front ends and engine processes say to each other. Pixels are not in it: they lie in slots.

A front end begins with `Hello`, and the descriptor of its slots beside it. Every `Submit` is answered once, by `Done`
or `Failed`; until then its slot is the engine's. Times are on the machine's monotonic clock, which processes share.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Message(msgspec.Struct, array_like=True, gc=False, tag=True):
    """Encoded as an array that begins with the name of its type."""


class Hello(_Message):
    """A front end is there; its slots have that many bytes."""

    front_end: int
    slots_bytes: int


class Offer(_Message):
    """A model that can be used under that number until the front end says `LetGo`."""

    lease: int
    name: str
    version: int
    engine: str
    precision: str


class Status(_Message):
    """A version as people see it: `engines.served.ModelStatus`, its manifest as JSON."""

    name: str
    version: int
    state: str
    manifest: str | None
    reason: str
    engine: str | None
    precision: str | None
    device: str | None


class Served(_Message):
    """All models; sent first, and whenever something changed. What is offered no longer is to be let go of."""

    offers: list[Offer]
    statuses: list[Status]


class Vitals(_Message):
    """Whether the device worker works; sent when that changes."""

    ready: bool


class LetGo(_Message):
    """Nobody of this front end uses that lease any more, and nobody will."""

    lease: int


class Wanted(_Message):
    """Offer a version that is not the newest. Answered by `Found`, after `Served`, or by `Failed`."""

    id: int
    name: str
    version: int


class Found(_Message):
    """That version is offered now."""

    id: int


class Submit(_Message):
    """Compute one sample that lies in a slot."""

    id: int
    lease: int
    offset: int
    """Of the slot, in bytes."""
    height: int
    width: int
    samples: int
    deadline: float
    tell_begun: bool
    client: str
    priority: int
    traced: bool = False


class Withdraw(_Message):
    """Nobody waits for it: do not compute it if it has not begun. It is answered all the same."""

    id: int


class Begun(_Message):
    """It was taken into a batch."""

    id: int


class Done(_Message):
    """Its tile is in the slot, which is the front end's again."""

    id: int
    batch_size: int
    queue_s: float
    infer_s: float
    device_s: float
    batch: str = ""
    """The `traceparent` of its batch's span, if it was to have one."""


class Failed(_Message):
    """There is no tile; the slot is the front end's again. `kind` names the error's class."""

    id: int
    kind: str
    text: str
    code: str = ""
    retry_after_s: float | None = None


Message: TypeAlias = Hello | Served | Vitals | LetGo | Wanted | Found | Submit | Withdraw | Begun | Done | Failed

encode = msgspec.msgpack.Encoder().encode
decode_all = msgspec.msgpack.Decoder(list[Message]).decode
"""The messages of one frame. Raises msgspec.DecodeError."""
