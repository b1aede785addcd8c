"""One request on its way through the server: its identity, deadline and timings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from service.core.flow import ANYONE, Flow


@dataclass(slots=True)
class Timings:
    """Seconds spent in each stage of one request, by the names of the Server-Timing header."""

    stages: dict[str, float] = field(default_factory=dict)
    on_ended: Callable[[str, float], None] | None = None
    """Callback for the end of each stage, with its name and seconds, on the thread that it ran on."""

    def ended(self, stage: str, seconds: float) -> None:
        """Add a stage that just ended, and report it."""
        self.add(stage, seconds)
        if self.on_ended is not None:
            self.on_ended(stage, seconds)

    def add(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds

    def header(self) -> str:
        """Return the value of a Server-Timing header, in milliseconds (W3C Server Timing)."""
        return ", ".join(f"{name};dur={seconds * 1e3:.3f}" for name, seconds in self.stages.items())


class OnLarge(Protocol):
    """Callback on the event loop when the work of a request turns out to be large."""

    def __call__(self, *, computed: bool = False) -> None:
        """Stop counting the request as an ordinary one.

        Args:
            computed: whether the engine has computed it already, so that only postprocessing takes long.
        """


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its id, its deadline, its flow in the queue, and callbacks for its progress."""

    request_id: str
    received_at: float
    """Time of arrival on the server's monotonic clock, in seconds."""
    deadline: float
    """The time by which the request must be answered, on the same clock."""
    flow: Flow = ANYONE
    """The client and priority that the queue counts the request under."""
    on_begun: Callable[[], None] | None = None
    """Callback on the event loop when the first batch with a sample of this request is formed."""
    traceparent: str = ""
    """The identity of the request's span (W3C Trace Context); empty if it is not traced."""
    repeat_key: str | None = None
    """Digest that the request shares with its repeats and with no other one; None if it has no Idempotency-Key."""
    deadline_from_client: bool = False
    """Whether the client set the deadline."""
    is_job: bool = False
    """Whether the request is a job: no client holds a connection open, so it may wait where others are refused."""
    on_large: OnLarge | None = None
    result_id: Callable[[int], str] | None = None
    """Makes the id that a picture is stored under, from its index; None: ids are random."""
    may_share: Callable[[Any], bool] | None = None
    """Protects the results from removal, so that other requests can be given them; returns False if they may have been
    removed already. Called with the ledger's transaction that caches them; None if nothing removes them."""
    raise_if_disconnected: Callable[[], None] = lambda: None
    """Raises Cancelled if the client has left; does nothing for a job, and where other requests share the result."""
    on_model: Callable[[str], None] = lambda _: None
    """Callback with the model's name and version as soon as they are known, so that a failure is counted as theirs."""

    @property
    def has_repeats(self) -> bool:
        """Whether repeats may request the same answer.

        If so, the call continues without its client, however long the storing of its results takes once it has begun.
        """
        return self.repeat_key is not None and not self.is_job
