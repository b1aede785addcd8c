"""Usage of API keys across all hosts: every process admits from blocks that it fetches in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from service.core.errors import NotReady
from service.fleet import key_usage_table
from service.fleet.blocks import Block, block_of_quota, block_of_rate
from service.fleet.key_usage_table import Demand
from service.ledger.database import Database

_DAY_S = 86_400


@dataclass(slots=True)
class _KeyBlocks:
    """The blocks of one key, and its limits."""

    tokens: Block = field(default_factory=Block)
    requests: Block = field(default_factory=Block)
    rate_per_s: float = 0.0
    burst: int = 0
    allowed: int = 0
    day: int = 0
    fetching: asyncio.Task[None] | None = None
    failure: str = ""
    """Reason why the last block could not be fetched; empty if it was fetched."""


class SharedKeyUsage:
    """Usage of keys in all processes of a ledger. Implements `KeyUsage`; used on the event loop.

    Args:
        ledger: a PostgreSQL database.
        now: the database's clock, in seconds since the epoch.
        lease_s: seconds for which a process counts as alive after its last heartbeat.
    """

    def __init__(self, ledger: Database, now: Callable[[], float], lease_s: float) -> None:
        self._ledger = ledger
        self._now = now
        self._lease_s = lease_s
        self._keys: dict[str, _KeyBlocks] = {}
        self._processes = 1

    def take_token(self, key_id: str, rate_per_s: float, burst: int) -> float:
        """See `KeyUsage`."""
        blocks = self._keys.setdefault(key_id, _KeyBlocks())
        blocks.rate_per_s, blocks.burst = rate_per_s, burst
        return self._take(key_id, blocks, blocks.tokens, block_of_rate(rate_per_s, burst, self._processes))

    def take_request(self, key_id: str, allowed: int) -> float:
        """See `KeyUsage`."""
        blocks = self._keys.setdefault(key_id, _KeyBlocks())
        blocks.allowed = allowed
        today = int(self._now() // _DAY_S)
        if today != blocks.day:
            blocks.day, blocks.requests = today, Block()
        return self._take(key_id, blocks, blocks.requests, block_of_quota(allowed, self._processes))

    def keep_only(self, key_ids: Collection[str]) -> None:
        """See `KeyUsage`; the counts stay in the ledger."""
        self._keys = {key_id: blocks for key_id, blocks in self._keys.items() if key_id in key_ids}

    async def close(self) -> None:
        """Stop fetching; what this process still holds counts as used."""
        tasks = [blocks.fetching for blocks in self._keys.values() if blocks.fetching]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, key_id: str, blocks: _KeyBlocks, block: Block, size: float) -> float:
        away = blocks.failure if block.left < 1.0 else ""
        wait_s = 0.0 if away else block.take(size, self._now())
        if blocks.fetching is None and (away or self._demand(key_id, blocks) is not None):
            blocks.fetching = asyncio.get_running_loop().create_task(self._fetch(key_id, blocks))
        if away:
            raise NotReady(f"the limits of this key cannot be checked now: {away}", code="ledger_unavailable")
        return wait_s

    def _demand(self, key_id: str, blocks: _KeyBlocks) -> Demand | None:
        """Return the demand to send to the ledger now; None if nothing is wanted."""
        now, tokens, requests = self._now(), 0.0, 0.0
        if blocks.rate_per_s:
            size = block_of_rate(blocks.rate_per_s, blocks.burst, self._processes)
            tokens = blocks.tokens.wanted(size, now)
        if blocks.allowed:
            requests = blocks.requests.wanted(block_of_quota(blocks.allowed, self._processes), now)
        if not tokens and not requests:
            return None
        owed = (max(0.0, -blocks.tokens.left) if tokens else 0.0, max(0.0, -blocks.requests.left) if requests else 0.0)
        rate = (blocks.rate_per_s, blocks.burst)
        return Demand(key_id, tokens, owed[0], *rate, requests, owed[1], blocks.allowed)

    async def _fetch(self, key_id: str, blocks: _KeyBlocks) -> None:
        try:
            demand, day = self._demand(key_id, blocks), blocks.day
            if demand is None:
                return
            take = partial(key_usage_table.take, demand=demand, lease_s=self._lease_s)
            grant = await self._ledger.write(take)
            now, self._processes = self._now(), grant.processes
            blocks.failure, shares = "", 2 * grant.processes
            if demand.tokens:
                blocks.tokens.receive(grant.tokens, grant.tokens_wait_s, now, grant.tokens_left / shares)
            if demand.requests and blocks.day == day:
                blocks.requests.receive(grant.requests, grant.requests_wait_s, now, grant.requests_left / shares)
        except NotReady as error:
            blocks.failure = str(error)
        finally:
            blocks.fetching = None
