"""Readiness of the server, from the state of its parts, and estimates of how long an outage lasts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.repository.versions import ModelStatus
from service.telemetry.redaction import without_folders

_EMPTY = "the models folder is empty or missing; the server's log says which one it is"
"""The message does not name the folder, because clients see it."""


@dataclass(frozen=True, slots=True)
class ReadinessState:
    """The state that decides whether the server is ready."""

    draining: bool
    scanned: bool
    """Whether the model repository has been scanned once."""
    worker_ready: bool
    models: Sequence[ModelStatus]
    loading: str = ""
    """The model that is being loaded and how far that is; empty if none is."""


@dataclass(slots=True)
class Outage:
    """The present or last outage (start-up is the first), and how long outages last."""

    since: float
    """When the outage began."""
    startup_s: float = 0.0
    """Seconds from start to ready; 0 until the server is ready."""
    usual_s: float = 0.0
    """Duration of the last outage."""
    over: bool = False

    def observe(self, ready: bool, now: float) -> None:
        """Record whether the server is ready; called often."""
        if ready and not self.over:
            self.usual_s = now - self.since
            self.startup_s = self.startup_s or self.usual_s
        elif not ready and self.over:
            self.since = now
        self.over = ready

    def remaining_s(self, now: float) -> float:
        """Predicted seconds until the outage ends: it lasts as long as the last one, or twice as long as until now."""
        if self.over:
            return self.usual_s
        lasted_s = now - self.since
        return self.usual_s - lasted_s if self.usual_s > lasted_s else lasted_s


def serving_names(models: Sequence[ModelStatus]) -> list[str]:
    """The models that are ready, for logs: `photos/5 on openvino/bf16`."""
    return [f"{m.name}/{m.version} on {m.engine}/{m.precision}" for m in models if m.state == "ready"]


def unready_reasons(state: ReadinessState) -> list[str]:
    """Why the server is not ready; empty if it is."""
    reasons = []
    if state.draining:
        reasons.append("draining: the server is shutting down")
    if not state.scanned:
        reasons.append(f"models are loading: {state.loading}" if state.loading else "models are loading")
    elif not any(model.state == "ready" for model in state.models):
        refused = "; ".join(f"{m.name}/{m.version}: {m.reason}" for m in state.models if m.state == "refused")
        reasons.append(f"no model can be served ({without_folders(refused) or _EMPTY})")
    if not state.worker_ready and state.scanned:  # a front end may not be connected to the engine process before
        reasons.append("the device worker died or hangs and is being restarted")
    return reasons


def storage_reasons(why: str, refusal: str, *, saves: bool) -> list[str]:
    """Why results cannot be saved or the ledger not be used now; empty if they can.

    Args:
        why: error of the disk; empty while it accepts results.
        refusal: of the ledger, and what to do; empty while it is used.
        saves: whether results are saved by default: a failing disk does not matter to a server that saves on request.
    """
    reasons = [f"results cannot be saved ({why})"] if why and saves else []
    return [*reasons, f"the ledger is not used: {refusal}"] if refusal else reasons
