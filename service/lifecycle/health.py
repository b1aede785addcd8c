"""Readiness of the server, computed from the state of its parts, and estimates of an outage's duration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.repository.versions import ModelStatus
from service.telemetry.redaction import without_folders

_EMPTY = "the models folder is empty or missing; the server's log names it"
"""Does not name the folder, because clients see the message."""


@dataclass(frozen=True, slots=True)
class ReadinessState:
    """The state that decides whether the server is ready."""

    draining: bool
    scanned: bool
    """Whether the model repository has been scanned at least once."""
    worker_ready: bool
    models: Sequence[ModelStatus]
    loading: str = ""
    """The model that is being loaded, and its progress; empty if none is being loaded."""


@dataclass(slots=True)
class Outage:
    """The current or last outage (the first is start-up), and how long outages last."""

    since: float
    """Time at which the outage began."""
    startup_s: float = 0.0
    """Seconds from start to ready; 0 until the server is ready."""
    usual_s: float = 0.0
    """Duration of the last completed outage, in seconds."""
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
        """Return the predicted seconds until the outage ends; without an outage, the duration of the last one.

        An outage is expected to last as long as the previous one; once it has, twice as long as it has lasted so far.
        """
        if self.over:
            return self.usual_s
        lasted_s = now - self.since
        return self.usual_s - lasted_s if self.usual_s > lasted_s else lasted_s


def serving_names(models: Sequence[ModelStatus]) -> list[str]:
    """Return the models that are ready, for logs, such as `photos/5 on openvino/bf16`."""
    return [f"{m.name}/{m.version} on {m.engine}/{m.precision}" for m in models if m.state == "ready"]


def unready_reasons(state: ReadinessState) -> list[str]:
    """Return why the server is not ready; empty if it is."""
    reasons = []
    if state.draining:
        reasons.append("draining: the server is shutting down")
    if not state.scanned:
        reasons.append(f"models are loading: {state.loading}" if state.loading else "models are loading")
    elif not any(model.state == "ready" for model in state.models):
        refused = "; ".join(f"{m.name}/{m.version}: {m.reason}" for m in state.models if m.state == "refused")
        reasons.append(f"no model can be served ({without_folders(refused) or _EMPTY})")
    if not state.worker_ready and state.scanned:  # before the scan, a front end may not be connected yet
        reasons.append("the device worker died or hangs and is being restarted")
    return reasons


def storage_reasons(disk_error: str, refusal: str, *, saves: bool) -> list[str]:
    """Return why results cannot be saved or the ledger cannot be used now; empty if neither applies.

    Args:
        disk_error: error of the disk; empty while it accepts results.
        refusal: why the ledger cannot be used, and what to do; empty while it is used.
        saves: whether results are saved by default; if only on request, a failing disk is not reported.
    """
    reasons = [f"results cannot be saved ({disk_error})"] if disk_error and saves else []
    return [*reasons, f"the ledger is not used: {refusal}"] if refusal else reasons
