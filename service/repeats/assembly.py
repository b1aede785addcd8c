"""Builds the idempotency keys from the settings, and removes expired ones while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from service.core.errors import ServiceError
from service.ledger.contract import Owner
from service.ledger.database import Database
from service.lifecycle.background import run_in_background
from service.repeats.earlier_results import EarlierResults
from service.repeats.idempotency import Idempotency
from service.repeats.response_files import ResponseFiles

_log = structlog.get_logger(__name__)
_DELETE_INTERVAL_S = 60.0
_KEY_TTL_S = 86_400.0
"""Lifetime of a key and its answer in seconds: clients that retry do so within a day."""
_MAX_WAIT_S = 30.0
"""Longest wait in seconds for the answer to an earlier request with the same key; after it, the reply is 409."""


@asynccontextmanager
async def open_idempotency(
    ledger: Database,
    responses: ResponseFiles,
    owner: Owner,
    earlier: EarlierResults,
    now: Callable[[], float],
    pause: Callable[[float], Awaitable[None]],
) -> AsyncIterator[Idempotency]:
    """Open the idempotency keys of all processes that share the ledger.

    Args:
        ledger: the ledger, with the table of keys.
        responses: storage of the answers.
        owner: this process.
        earlier: access to the results that were stored for requests with keys, which were not answered.
        now: the ledger's clock, in seconds since the epoch.
        pause: waits for a number of seconds, or until another process has answered a key.
    """
    idempotency = Idempotency(
        ledger=ledger,
        responses=responses,
        disk=earlier.store.disk,
        owner=owner,
        now=now,
        ttl_s=_KEY_TTL_S,
        wait_s=_MAX_WAIT_S,
        deleted=earlier.store.index.deleted,
        left_by=earlier.left_by,
        bury_in=earlier.store.index.bury_in,
        stored_in=earlier.stored_in,
        pause=pause,
    )
    async with run_in_background(_delete_expired_keys(idempotency)):
        yield idempotency
    await idempotency.close()


async def _delete_expired_keys(idempotency: Idempotency) -> None:
    while True:
        try:
            await idempotency.delete_expired()
        except (ServiceError, OSError) as error:
            _log.warning("expired idempotency keys cannot be deleted; retrying", error=str(error))
        await asyncio.sleep(_DELETE_INTERVAL_S)
