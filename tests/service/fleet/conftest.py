"""A fleet that a module's tests share, and fleets for single tests that kill or break servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.service.fleet.nodes import Fleet, running_fleet
from tests.serving.backing.postgres_server import PostgresCluster

StartFleet = Callable[..., Fleet]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresCluster) -> Iterator[Fleet]:
    """A fleet of three servers."""
    with running_fleet(tmp_path_factory.mktemp("fleet"), postgres, 3, fake_batch_ms=30) as running:
        yield running


@pytest.fixture
def start_fleet(tmp_path: Path, postgres: PostgresCluster) -> Iterator[StartFleet]:
    """Start a fleet that ends with the test: `start_fleet(count, **settings)`."""
    with ExitStack() as stack:
        yield lambda count, **settings: stack.enter_context(running_fleet(tmp_path, postgres, count, **settings))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60.0) as client:
        yield client
