"""One request on its way through the server: its identity, deadline and timings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from service.core.flow import ANYONE, Flow


@dataclass(slots=True)
class Timings:
    """Seconds spent in each stage of one request; names as in the Server-Timing header."""

    stages: dict[str, float] = field(default_factory=dict)
    on_ended: Callable[[str, float], None] | None = None
    """Called with each stage and its seconds when it ends, on the thread that it ran on."""

    def ended(self, stage: str, seconds: float) -> None:
        """Add a stage that ended just now, and report it."""
        self.add(stage, seconds)
        if self.on_ended is not None:
            self.on_ended(stage, seconds)

    def add(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds

    def header(self) -> str:
        """The value of a Server-Timing header, in milliseconds (W3C Server Timing)."""
        return ", ".join(f"{name};dur={seconds * 1e3:.3f}" for name, seconds in self.stages.items())


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its id, its deadline, whose share of the engine it uses, and whom to tell of its progress."""

    request_id: str
    received_at: float
    """On the server's monotonic clock, in seconds."""
    deadline: float
    """On the same clock: the answer is of no use after it."""
    flow: Flow = ANYONE
    """The client and priority that the queue counts it to."""
    on_begun: Callable[[], None] | None = None
    """Called on the event loop when the first batch with a sample of this request is formed."""
    traceparent: str = ""
    """Identifies its span (W3C Trace Context); empty where it is not traced."""
    own_deadline: bool = False
    """Whether the client named the deadline itself."""
    on_large: Callable[[], None] | None = None
    """Called on the event loop when its pictures prove to be large."""
