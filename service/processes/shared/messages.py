"""Messages between front ends and engine processes. Pixels are not in messages but in slots.

A front end first sends `Hello` and the descriptor of its slots. Every `Submit` is answered once, by `Done` or `Failed`;
until then its slot belongs to the engine process. Times are in seconds on the monotonic clock, which the processes of a
host share.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Message(msgspec.Struct, array_like=True, gc=False, tag=True):
    """Base class of the messages; encoded as an array that begins with the name of the class."""


class Hello(_Message):
    """Greeting of a front end, with its index and the size of its slots' memory."""

    front_end: int
    slots_bytes: int
    wants_all: bool = False
    """Whether it is to be answered once all models are loaded, as it knows those of the process that is replaced."""


class Offer(_Message):
    """A model that the engine process offers; the front end refers to it by the number `lease` until `Release`."""

    lease: int
    name: str
    version: int
    engine: str
    precision: str


class Status(_Message):
    """State of a version of a model: `ModelStatus`, with the manifest as JSON."""

    name: str
    version: int
    state: str
    manifest: str | None
    reason: str
    engine: str | None
    precision: str | None
    device: str | None


class Served(_Message):
    """All models of an engine process, sent first and on changes; the front end releases models that are missing."""

    offers: list[Offer]
    statuses: list[Status]


class Readiness(_Message):
    """Readiness of the device worker, and whether all models have been loaded; sent on changes."""

    ready: bool
    loaded: bool


class Release(_Message):
    """Release of a model, which the front end will not use any more."""

    lease: int


class RequestVersion(_Message):
    """Request to offer a version that is not the newest; answered by `Served` and `VersionOffered`, or by `Failed`."""

    id: int
    name: str
    version: int


class VersionOffered(_Message):
    """Answer to `RequestVersion`: the version is offered now."""

    id: int


class Submit(_Message):
    """Request to compute the sample in a slot."""

    id: int
    """Number that the answer repeats."""
    lease: int
    """The engine process's number for the model, from `Offer`."""
    offset: int
    """Offset of the slot in the shared memory, in bytes."""
    height: int
    width: int
    samples: int
    deadline: float
    notify_begun: bool
    client: str
    priority: int
    traced: bool = False


class Withdraw(_Message):
    """Request not to compute a sample that is still queued; the `Submit` is answered in any case."""

    id: int


class Begun(_Message):
    """Notice that a sample was taken into a batch."""

    id: int


class Done(_Message):
    """Answer to `Submit`: the tile is in the slot, which belongs to the front end again."""

    id: int
    batch_size: int
    queue_s: float
    infer_s: float
    device_s: float
    batch: str = ""
    """The `traceparent` of the batch's span, if it has one."""


class Failed(_Message):
    """Answer with an error, whose class is `kind`; the slot belongs to the front end again."""

    id: int
    kind: str
    text: str
    code: str = ""
    retry_after_s: float | None = None


Message: TypeAlias = (
    Hello | Served | Readiness | Release | RequestVersion | VersionOffered | Submit | Withdraw | Begun | Done | Failed
)

encode = msgspec.msgpack.Encoder().encode
decode_all = msgspec.msgpack.Decoder(list[Message]).decode
"""Decode the messages of one frame. Raises msgspec.DecodeError."""
