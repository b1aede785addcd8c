"""The verdict on killed replicas: every reply and job is in exactly one count. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import Any

from benchmarks.harness.raw_http import Reply


@dataclass(slots=True)
class Round:
    """One kill, and the replies to the requests around it."""

    killed: str
    inside: int = 0
    """Requests without a reply at the kill."""
    retries: int = 0
    replies: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    """Descriptions of replies that no client should get."""
    job_ends: Counter[str] = field(default_factory=Counter)
    jobs_lost: int = 0
    """Jobs that a client was promised and that no ledger has."""
    jobs_recorded_twice: int = 0
    """Jobs in the ledger that no client was promised: their requests were sent again."""
    replayed_differently: int = 0
    new_replica_s: float = 0.0

    def compare_jobs(self, locations: Iterable[str], recorded: AbstractSet[str]) -> None:
        """Count lost and doubled jobs, each for itself. recorded: the ids of the round's jobs in the ledger."""
        promised = {location.rpartition("/")[2] for location in locations}
        self.jobs_lost, self.jobs_recorded_twice = len(promised - recorded), len(recorded - promised)

    def figures(self) -> dict[str, Any]:
        """Return all fields."""
        return {one.name: getattr(self, one.name) for one in fields(self)}  # `asdict` cannot copy a Counter


def outcome(reply: Reply) -> str:
    """Name a reply: its status, `refused`, which asks to come again later, or the reason why there is none."""
    if reply.status in (200, 202):
        return str(reply.status)
    if reply.status in (429, 503) and "retry-after" in reply.headers:
        return f"refused {reply.code}"
    return f"{reply.status} {reply.code}" if reply.status else reply.code


def verdict(rounds: list[Round], surplus: int) -> dict[str, Any]:
    """Sum up all rounds. surplus: the number of replies without a request."""
    replies = sum((one.replies for one in rounds), Counter[str]())
    answered = replies["200"] + replies["202"]
    refused = sum(count for name, count in replies.items() if name.startswith("refused"))
    job_ends = sum((one.job_ends for one in rounds), Counter[str]())
    return {
        "kills": dict(Counter(one.killed for one in rounds)),
        "requests": replies.total(),
        "answered": answered,
        "refused": refused,
        "cut_off": replies["cut off"],
        "no_or_other_reply": replies.total() - answered - refused - replies["cut off"],
        "odd_replies": sum(len(one.odd) for one in rounds),
        "answered_twice": surplus,
        "replayed_differently": sum(one.replayed_differently for one in rounds),
        "jobs": replies["202"],
        "jobs_not_succeeded": job_ends.total() - job_ends["succeeded"],
        "jobs_lost": sum(one.jobs_lost for one in rounds),
        "jobs_recorded_twice": sum(one.jobs_recorded_twice for one in rounds),
        "inside_at_the_kills": sum(one.inside for one in rounds),
        "retries": sum(one.retries for one in rounds),
        "kills_that_met_no_request": sum(not one.retries for one in rounds),
        "slowest_new_replica_s": max((one.new_replica_s for one in rounds), default=0.0),
        "replies": dict(replies),
    }
