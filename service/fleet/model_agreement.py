"""Agreement of the processes of a ledger on the model versions to serve: the versions that enough of them have.

On each host one process at a time follows the bucket. When another takes over, both count until the first one's lease
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import msgspec

from service.ledger.contract import Connections, Transaction, named

_EPSILON = 1e-9


@dataclass(slots=True)
class SharedAgreement:
    """The agreement of all hosts of a ledger. See `Agreement`.

    A version that was agreed on once is served by every process that has it.

    share: fraction, 0 to 1, of the live processes with announced versions; a version that so many have is agreed on.
    node_id: id of this process.
    lease_s: how long a process counts as alive after its last heartbeat.
    is_steady: whether this process has watched the others' heartbeats long enough to judge them.
    """

    connections: Connections
    share: float
    node_id: str
    lease_s: float
    is_steady: Callable[[], bool]

    def agreed(self, versions: Collection[str]) -> set[str]:
        """See `Agreement`."""
        work = partial(_agree, agreement=self, versions=sorted(versions), steady=self.is_steady())
        return self.connections.write(work)


def _agree(ledger: Transaction, agreement: SharedAgreement, versions: list[str], steady: bool) -> set[str]:
    ledger.execute("DELETE FROM model_followers WHERE node NOT IN (SELECT id FROM nodes)")
    ledger.execute(
        "INSERT INTO model_followers (node, versions) VALUES (?, ?) "
        "ON CONFLICT (node) DO UPDATE SET versions = excluded.versions "
        "WHERE model_followers.versions <> excluded.versions",
        (agreement.node_id, msgspec.json.encode(versions).decode()),
    )
    rows = ledger.execute(
        "SELECT versions FROM model_followers JOIN nodes ON id = node "
        "WHERE seen_at > clock_timestamp() - ? * interval '1 second'",
        (agreement.lease_s,),
    )
    everyone = [set(msgspec.json.decode(row["versions"], type=list[str])) for row in rows]
    if steady:
        needed = agreement.share * len(everyone) - _EPSILON
        enough = [(version,) for version in versions if sum(version in has for has in everyone) >= needed]
        _forget_withdrawn(ledger, set().union(*everyone))
        ledger.executemany("INSERT INTO model_agreed (version) VALUES (?) ON CONFLICT DO NOTHING", enough)
    found = ledger.execute(f"SELECT version FROM model_agreed WHERE version IN {named(versions)}", versions)  # noqa: S608 -- values are bound
    return {row["version"] for row in found}


def _forget_withdrawn(ledger: Transaction, remaining: set[str]) -> None:
    """Remove versions that no process has any more; if they are pushed again, they need a new agreement."""
    agreed = {row["version"] for row in ledger.execute("SELECT version FROM model_agreed")}
    ledger.executemany(
        "DELETE FROM model_agreed WHERE version = ?", [(version,) for version in sorted(agreed - remaining)]
    )
