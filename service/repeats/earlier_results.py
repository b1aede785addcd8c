"""Results that a process stored for a request with a key, before it died, or refused the request, without an answer.

A repeat of the request is answered with them if all are there. If some are missing, or are in the spool of a host that
does not run, the others are deleted when the repeat claims the key, so that the request has only the repeat's results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from service.core.errors import Gone, NotReady, ServiceError
from service.core.reply import Encoded, Reply
from service.ledger.contract import Transaction
from service.repeats.attempt import result_ids
from service.repeats.idempotency_table import Claim
from service.saving import index_table
from service.saving.sidecar import reply_of
from service.saving.store import ResultStore

_log = structlog.get_logger(__name__)


class Left(NamedTuple):
    """Results that the process of a claim has left."""

    reply: Reply | None = None
    """The reply with the results; None if not all are there."""
    result_ids: tuple[str, ...] = ()
    """The ids of the results in the reply."""
    incomplete: tuple[str, ...] = ()
    """Ids of results to delete: others are missing, and no other request can have been given them."""


@dataclass(frozen=True, slots=True)
class EarlierResults:
    """Access to results that were stored for unanswered claims. Its methods block."""

    store: ResultStore
    wants_durable: bool
    """Whether a reply may promise only results that are in the durable storage (`--promise store`)."""

    def left_by(self, orphan: Claim, ids: Sequence[str]) -> Left:
        """Return what is left of the results with these ids, which the ledger has for a claim that is taken over.

        Raises:
            Gone: a result was deleted by its owner.
            NotReady: the results cannot be read, or promised, now.
        """
        refuse_if_deleted(self.store.index.deleted(ids))
        found = self._load(ids)
        reply = reply_of(found)
        if reply is None:
            own = set() if orphan.shared else {*ids} & {*result_ids(orphan, len(ids))}
            return Left(incomplete=tuple(own))
        sidecars = [sidecar for _, sidecar in found]
        if not self.store.spooled_among(ids):
            self.store.index.saved(sidecars)  # its process may have died before it did so
        elif self.wants_durable:
            why = "the result was computed, and is not in the storage of results yet; try again later"
            raise NotReady(why, code="storage_unavailable", retry_after_s=1.0)
        else:
            self.store.index.spooled(sidecars)  # so that `stored_in` finds them, if this repeat fails, too
        _log.info("results of an earlier attempt answer the repeat of a request", results=list(ids))
        return Left(reply, tuple(ids))

    def stored_in(self, ledger: Transaction, ids: Sequence[str]) -> bool:
        """Return whether a result with one of these ids was stored, which the ledger's transaction shows.

        Those that this process has stored count before they are in the ledger.
        """
        index = self.store.index
        return self.store.unsaved_among(ids) or index.any_pending(ids) or bool(index_table.known(ledger, ids))

    def _load(self, ids: Sequence[str]) -> list[tuple[Encoded, dict[str, Any]]]:
        """Return the results with their sidecars; an empty list if one is missing or damaged."""
        found = []
        for one in ids:
            try:
                image, sidecar = self.store.get(one), self.store.sidecar(one)
            except NotReady:
                raise
            except ServiceError:  # damaged
                return []
            if image is None or sidecar is None:
                return []
            found.append((Encoded(image[0], one), sidecar))
        return found


def refuse_if_deleted(deleted: Collection[str] | bool) -> None:
    """Raise Gone if a result of an answer was deleted."""
    if deleted:
        raise Gone("the answer to this Idempotency-Key contained a result that was deleted; use a new key")
