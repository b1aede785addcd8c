"""One call of a client, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from service.admission.deadline import await_with_deadline
from service.app import Service
from service.auth.clients import Client
from service.core.errors import DeadlineExceeded, InvalidRequest, TooLarge, UploadTimeout
from service.grpc.message_memory import MessageMemory
from service.grpc.metadata import MetadataLines

_NO_CLIENT: Client = Client("", scopes=frozenset())


class Context(Protocol):
    """The part of grpcio's context of a call that calls use."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        """Return the client's metadata."""

    def peer(self) -> str:
        """Return the client's address, as grpcio writes it."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None without one."""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a function once the status has been sent, or cannot be sent."""

    async def read(self) -> Any:
        """Return the next message, or grpcio's end-of-stream marker."""

    async def write(self, message: bytes) -> None:
        """Send a message; returns when the client's flow control has accepted it."""

    def set_trailing_metadata(self, trailing_metadata: tuple[tuple[str, str], ...]) -> None:
        """Set the metadata that is sent after the message."""

    def set_code(self, code: Any) -> None:
        """Set the status."""

    def set_details(self, details: str) -> None:
        """Set the message of the status."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The message of an answer, and its trailing metadata."""

    message: bytes
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RemoteCall:
    """A call whose message has not been read.

    path: `/inference.GRPCInferenceService/METHOD`. client: set once the key has been checked.
    traceparent: the identity of its span; empty if it is not traced.
    model: name and version of the model that is to compute it; empty until they are known.
    """

    service: Service
    memory: MessageMemory
    context: Context
    path: str
    lines: MetadataLines
    request_id: str
    client: Client = _NO_CLIENT
    traceparent: str = ""
    model: str = ""

    async def read(self, max_bytes: int | None = None) -> bytes:
        """Wait for a slot in memory, and read the message.

        Args:
            max_bytes: the largest message; by default the server's limit of a body, which gRPC itself enforces.

        Raises:
            InvalidRequest: no message came, or it is over the server's limit; gRPC has then sent the status already.
            TooLarge: the message is larger than `max_bytes`.
            Overloaded: as `MessageMemory.arriving`.
        """
        async with self.memory.arriving(self.client.id):
            message: Any = await self.context.read()
        if not isinstance(message, bytes):
            raise InvalidRequest("no message was received, or it is too large")
        if max_bytes is not None and len(message) > max_bytes:
            raise TooLarge(f"the message has {len(message)} bytes; this method accepts at most {max_bytes}")
        return message

    async def read_in_time(self, max_bytes: int) -> bytes:
        """Read a small message of a method that is not admitted.

        Raises:
            UploadTimeout: the message does not arrive within `body_timeout_s`.
            InvalidRequest, TooLarge, Overloaded: as `read`.
        """
        limit_s = self.service.settings.body_timeout_s
        try:
            return await await_with_deadline(self.read(max_bytes), limit_s)
        except DeadlineExceeded:
            raise UploadTimeout(f"the message did not arrive within {limit_s:.0f} s; send it faster") from None
