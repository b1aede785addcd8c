"""The attempt of a process to answer the request with a key, once it has claimed the key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.core.reply import Reply
from service.ledger.contract import Transaction
from service.repeats import idempotency_table
from service.repeats.idempotency_table import Claim
from service.saving import index_table


class ResultsToStore(NamedTuple):
    """The number of results that a request stores if it succeeds, and their owner."""

    pictures: int = 0
    owner: str = ""
    """Their owner; see `Flow`."""


class Attempt(NamedTuple):
    """An attempt to answer: of the first request with a key, or of one that takes over an unanswered key."""

    result_ids: tuple[str, ...]
    """Ids to store its results under."""
    may_share: Callable[[Transaction], bool]
    """See `Call.may_share`."""
    earlier: Reply | None = None
    """The reply that the earlier attempt has computed and stored; None: compute it."""


def result_ids(claim: Claim, results: int) -> tuple[str, ...]:
    """Return the ids under which the request of a claim stores its results, in the order of the pictures.

    They cannot be guessed without knowing the owner's id, which is random.
    """
    claimed = f"{claim.claimed_by}/{claim.name}/{claim.expires_at!r}"
    return tuple(hashlib.sha256(f"{claimed}/{index}".encode()).hexdigest()[:32] for index in range(results))


def share_results(ledger: Transaction, claim: Claim, ids: Sequence[str]) -> bool:
    """Protect the results of a claim's request from removal, so that other requests can be given them.

    Returns:
        False if they are removed already, by a process that took over the key. A key that was released removes none.
    """
    idempotency_table.share(ledger, claim)
    return not index_table.deleted(ledger, ids)
