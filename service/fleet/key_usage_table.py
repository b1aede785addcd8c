"""Table of the usage of API keys on all hosts, from which processes take blocks. Only in PostgreSQL, on its clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.ledger.contract import Transaction

_DAY_S = 86_400
_NOW = "extract(epoch FROM clock_timestamp())::float8"


@dataclass(frozen=True, slots=True)
class Demand:
    """A process's demand for a block of a key's limits.

    tokens, requests: the number wanted; 0 for a limit that needs no block or that the key does not have.
    tokens_owed, requests_owed: how many of them were already admitted on credit.
    """

    key_id: str
    tokens: float = 0.0
    tokens_owed: float = 0.0
    rate_per_s: float = 0.0
    burst: int = 0
    requests: float = 0.0
    requests_owed: float = 0.0
    allowed: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a demand.

    tokens, requests: the number granted.
    tokens_wait_s, requests_wait_s: seconds until the limit has more; 0 if all that was wanted was granted.
    tokens_left, requests_left: the number left for all processes.
    processes: the number of processes alive.
    """

    tokens: float
    tokens_wait_s: float
    tokens_left: float
    requests: float
    requests_wait_s: float
    requests_left: float
    processes: int


def take(ledger: Transaction, demand: Demand, lease_s: float) -> Grant:
    """Take a block of each limit in the demand; what is owed is taken even if the limit is used up."""
    ledger.execute(
        "INSERT INTO key_usage (key_id, tokens, at, day, requests) "  # noqa: S608 -- values are bound
        f"SELECT ?, ?, now, floor(now / {_DAY_S})::int, 0 FROM (SELECT {_NOW} AS now) AS clock "
        "ON CONFLICT (key_id) DO NOTHING",
        (demand.key_id, float(demand.burst)),
    )
    row = ledger.execute(
        f"SELECT tokens, at, day, requests, {_NOW} AS now, "  # noqa: S608 -- values are bound
        "(SELECT count(*) FROM nodes WHERE seen_at > clock_timestamp() - ? * interval '1 second') AS processes "
        "FROM key_usage WHERE key_id = ? FOR UPDATE",
        (lease_s, demand.key_id),
    ).fetchone()
    now, today = row["now"], int(row["now"] // _DAY_S)
    refilled = min(float(demand.burst), row["tokens"] + max(0.0, now - row["at"]) * demand.rate_per_s)
    tokens = _granted(demand.tokens, demand.tokens_owed, refilled)
    used = row["requests"] if row["day"] == today else 0
    requests = _granted(demand.requests, demand.requests_owed, demand.allowed - used)
    ledger.execute(
        "UPDATE key_usage SET tokens = ?, at = ?, day = ?, requests = ? WHERE key_id = ?",
        (refilled - tokens, now, today, used + int(requests), demand.key_id),
    )
    tokens_wait_s = (1.0 - refilled + tokens) / demand.rate_per_s if tokens < demand.tokens else 0.0
    requests_wait_s = _DAY_S - now % _DAY_S if requests < demand.requests else 0.0
    left = (refilled - tokens, demand.allowed - used - requests)
    processes = max(1, row["processes"])
    return Grant(tokens, max(0.0, tokens_wait_s), left[0], requests, requests_wait_s, left[1], processes)


def _granted(wanted: float, owed: float, available: float) -> float:
    """Return the whole units to take out of `available`; what is owed is taken even if `available` is less."""
    return max(owed, float(min(math.floor(wanted), math.floor(max(0.0, available)))))
