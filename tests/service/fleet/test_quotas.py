"""Keys' limits hold across all servers of a fleet, and no request waits for another server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.service.fleet.nodes import PATH, Files, Fleet, running_fleet
from tests.serving.backing.postgres_server import PostgresCluster
from tests.serving.key_files import add_key

pytestmark = pytest.mark.slow
_DAILY, _RATE, _BURST = 200, 40.0, 20


@dataclass
class OneBucket:
    """A token bucket that is asked as often as the servers; on a busy machine clients may ask for less than the rate.

    seen: time of the last request, in seconds.
    """

    seen: float
    tokens: float = float(_BURST)
    admitted: int = 0

    def ask(self, now: float) -> None:
        """Take a token for a request, if there is one."""
        self.tokens, self.seen = min(_BURST, self.tokens + _RATE * (now - self.seen)), now
        if self.tokens >= 1:
            self.tokens -= 1
            self.admitted += 1


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    limits: dict[str, dict[str, object]] = {
        "daily": {"requests_per_day": _DAILY},
        "rate": {"rate_per_s": _RATE, "burst": _BURST},
    }
    return {"file": str(path), **{name: add_key(path, **fields) for name, fields in limits.items()}}


@pytest.fixture(scope="module")
def limited(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresCluster, keys: dict[str, str]
) -> Iterator[Fleet]:
    with running_fleet(tmp_path_factory.mktemp("limited"), postgres, 3, keys_file=keys["file"]) as fleet:
        yield fleet


async def test_a_daily_quota_is_kept_within_five_percent_over_all_servers(
    limited: Fleet, keys: dict[str, str], files: Files, http: httpx.AsyncClient
) -> None:
    headers = {"X-API-Key": keys["daily"]}
    statuses: Counter[int] = Counter()
    for start in range(0, int(_DAILY * 1.5), 12):
        urls = [f"{limited.url(number)}{PATH}" for number in range(start, start + 12)]
        replies = await asyncio.gather(*(http.post(url, files=files, headers=headers) for url in urls))
        statuses.update(reply.status_code for reply in replies)
    assert set(statuses) == {200, 429}
    assert _DAILY * 0.95 <= statuses[200] <= _DAILY * 1.05, statuses
    refused = await http.post(f"{limited.url(0)}{PATH}", files=files, headers=headers)
    assert refused.json()["code"] == "quota_exhausted"
    assert 0 < int(refused.headers["retry-after"]) <= 86_400


async def test_a_rate_is_kept_within_five_percent_over_all_servers(
    limited: Fleet, keys: dict[str, str], http: httpx.AsyncClient
) -> None:
    headers, admitted, lasted_s = {"X-API-Key": keys["rate"]}, 0, 8.0
    begun = time.monotonic()
    one_bucket = OneBucket(begun)

    async def client(number: int) -> None:
        nonlocal admitted
        while time.monotonic() - begun < lasted_s:
            reply = await http.get(f"{limited.url(number)}/v1/models", headers=headers)
            assert reply.status_code in (200, 429), reply.text
            admitted += reply.status_code == 200
            one_bucket.ask(time.monotonic())
            await asyncio.sleep(0.02)

    await asyncio.gather(*(client(number) for number in range(6)))
    most = _BURST + _RATE * (time.monotonic() - begun)
    assert one_bucket.admitted * 0.95 <= admitted <= most * 1.05, (one_bucket.admitted, admitted, most)
