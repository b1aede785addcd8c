"""The verdict on a run of faults in a fleet: its counts, and the events before each that should be 0. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from benchmarks.faults.fleet_clients import Arrival, Record
from benchmarks.faults.fleet_faults import KILL, RESTART_AFTER_S, Fault

_RECORDED_WITHIN_S = 2.0
"""Seconds within which a living sender that reaches its database records that a message has arrived."""
_ON_THE_WAY_S = RESTART_AFTER_S
"""Seconds after a sender's kill within which its message may still arrive; later ones are the restarted sender's."""


def messages_of(record: Record) -> set[str]:
    """Return the ids of the messages about accepted jobs."""
    return {f"msg_{place.rpartition('/')[2]}" for place in record.jobs}


def verdict(
    record: Record, faults: Sequence[Fault], missing: Collection[str], undelivered: Collection[str]
) -> dict[str, object]:
    """Return the counts of a run."""
    repeats = list(_repeats(record))
    excused = [pair for _, pair in repeats if _sender_was_killed(pair, faults)]
    return {
        "faults": dict(Counter(fault.kind for fault in faults)),
        "statuses": {str(status): count for status, count in sorted(record.statuses.items())},
        "lost": len(record.lost),
        "answered_twice": len(record.twice),
        "keys_with_two_jobs": sum(len(jobs) > 1 for jobs in record.jobs_of_key.values()),
        "promised": len(record.promised),
        "missing": len(missing),
        "jobs": len(record.jobs),
        "webhooks_never": len(undelivered),
        "webhooks_twice_as_their_sender_was_killed_in_between": len(excused),
        "webhooks_twice_otherwise": len(repeats) - len(excused),
        "unannounced_jobs": len(set(record.webhooks) - messages_of(record)),
    }


def traces(
    record: Record, faults: Sequence[Fault], missing: Collection[str], undelivered: Collection[str]
) -> list[str]:
    """Return a line for each request, job or message in a count that should be 0, and for each fault."""
    known = messages_of(record)
    lines = [f"lost: {one}" for one in record.lost]
    lines += [f"answered twice: {one}" for one in record.twice]
    lines += [f"missing: {one}" for one in missing]
    lines += [f"webhook never: {one}" for one in sorted(undelivered)]
    for key, jobs in record.jobs_of_key.items():
        if len(jobs) > 1 or not jobs <= known:
            shown = [f"{name} ({'announced' if name in known else 'unannounced'})" for name in sorted(jobs)]
            lines.append(f"jobs of key {key}: {', '.join(shown)}")
    for name, (first, second) in _repeats(record):
        killed = _sender_was_killed((first, second), faults)
        lines.append(
            f"webhook twice: {name} at {first.at:.2f} from {first.sender}, at {second.at:.2f} from {second.sender}; "
            f"{'its sender was killed in between' if killed else 'OTHERWISE'}"
        )
    lines += [f"fault: {one.begun:.1f} to {one.ended:.1f} {one.kind} {one.address}" for one in faults]
    return lines


def _repeats(record: Record) -> Iterator[tuple[str, tuple[Arrival, Arrival]]]:
    """Yield each repeated arrival of a message, with the arrival before it."""
    for name, arrivals in record.webhooks.items():
        for pair in pairwise(arrivals):
            yield name, pair


def _sender_was_killed(pair: tuple[Arrival, Arrival], faults: Sequence[Fault]) -> bool:
    """Return whether the first arrival's sender was killed before it could record the arrival."""
    first, second = pair
    kills = (fault.begun for fault in faults if fault.kind == KILL and fault.address == first.sender)
    return any(first.at - _ON_THE_WAY_S < at < min(first.at + _RECORDED_WITHIN_S, second.at) for at in kills)
