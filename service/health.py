"""Whether the server can work, from the state of its parts, and not from a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.repository import ModelStatus


@dataclass(frozen=True, slots=True)
class Vitals:
    """What readiness is decided on."""

    draining: bool
    scanned: bool
    """Whether the model repository has been looked at once."""
    worker_ready: bool
    models: Sequence[ModelStatus]


def unready_reasons(vitals: Vitals) -> list[str]:
    """Why the server cannot take work now; empty when it can."""
    reasons = []
    if vitals.draining:
        reasons.append("draining: the server is shutting down")
    if not vitals.scanned:
        reasons.append("models are loading")
    elif not any(model.state == "ready" for model in vitals.models):
        refused = "; ".join(f"{m.name}/{m.version}: {m.reason}" for m in vitals.models if m.state == "refused")
        reasons.append(f"no model can be served ({refused or 'the model repository is empty'})")
    if not vitals.worker_ready:
        reasons.append("the device worker died or hangs and is being restarted")
    return reasons
