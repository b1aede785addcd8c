"""Whether the server can work, from the state of its parts, and not from a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.repository.versions import ModelStatus
from service.telemetry.redaction import without_folders

_EMPTY = "the models folder is empty or missing; the server's log says which one it is"
"""Clients are not told: it is a path of this host."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """What readiness is decided on."""

    draining: bool
    scanned: bool
    """Whether the model repository has been looked at once."""
    worker_ready: bool
    models: Sequence[ModelStatus]


@dataclass(slots=True)
class Outage:
    """How long the server has not been able to work, and how long that usually takes: while it starts, and later."""

    since: float
    startup_s: float = 0.0
    """From start to ready; 0 until it was."""
    usual_s: float = 0.0
    """The last time that it took to become ready."""
    over: bool = False

    def observe(self, ready: bool, now: float) -> None:
        """Look at the server; called often."""
        if ready and not self.over:
            self.usual_s = now - self.since
            self.startup_s = self.startup_s or self.usual_s
        elif not ready and self.over:
            self.since = now
        self.over = ready

    def remaining_s(self, now: float) -> float:
        """Seconds until it should be over: as long as the last, or, where that was longer ago, as long again."""
        if self.over:
            return self.usual_s
        lasted_s = now - self.since
        return self.usual_s - lasted_s if self.usual_s > lasted_s else lasted_s


def serving_names(models: Sequence[ModelStatus]) -> list[str]:
    """The models that are ready, for people: `photos/4 on openvino/bf16`."""
    return [f"{m.name}/{m.version} on {m.engine}/{m.precision}" for m in models if m.state == "ready"]


def unready_reasons(vitals: Vitals) -> list[str]:
    """Why the server cannot take work now; empty when it can."""
    reasons = []
    if vitals.draining:
        reasons.append("draining: the server is shutting down")
    if not vitals.scanned:
        reasons.append("models are loading")
    elif not any(model.state == "ready" for model in vitals.models):
        refused = "; ".join(f"{m.name}/{m.version}: {m.reason}" for m in vitals.models if m.state == "refused")
        reasons.append(f"no model can be served ({without_folders(refused) or _EMPTY})")
    if not vitals.worker_ready:
        reasons.append("the device worker died or hangs and is being restarted")
    return reasons


def unsaved_reasons(why: str, *, saves: bool) -> list[str]:
    """Why the server cannot save now; empty when it can, and where it saves only what asks for it.

    Args:
        why: what the disk says; empty while it takes results.
        saves: whether requests are saved that do not say otherwise.
    """
    return [f"results cannot be saved ({why})"] if why and saves else []
