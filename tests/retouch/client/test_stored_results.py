"""Lists, thumbnails and deletion of stored results with both clients, against a server with keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

from retouch.client import AsyncRetouch, Retouch, StoredResult
from retouch.client.errors import Forbidden, Gone, InvalidOption, NotFound
from tests.retouch.client.conftest import Ask, client_models
from tests.serving.key_files import add_key
from tests.serving.local_server import serving
from tests.serving.waiting import wait_until

Listed = Callable[..., list[StoredResult]]
MINE = ["inference", "results:read", "results:delete"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    add_key(folder / "keys.json")
    with serving(folder, models_dir=client_models(folder / "models"), keys_file=str(folder / "keys.json")) as running:
        yield running.url


@pytest.fixture
def owner(folder: Path, url: str) -> Callable[..., str]:
    """Make a key that the running server knows: `owner(*scopes)`."""

    def make(*scopes: str) -> str:
        key = add_key(folder / "keys.json", scopes=scopes or MINE)
        wait_until(lambda: httpx.get(f"{url}/v1/models", headers={"X-API-Key": key}).status_code != 401)
        return key

    return make


@pytest.fixture(params=["sync", "async"])
def listed(request: pytest.FixtureRequest, url: str) -> Listed:
    """All entries that a client's `results` yields: `listed(key, **filters)`."""

    def with_sync(key: str, **filters: Any) -> list[StoredResult]:
        with Retouch(url, api_key=key) as client:
            return [*client.results(**filters)]

    def with_async(key: str, **filters: Any) -> list[StoredResult]:
        async def read() -> list[StoredResult]:
            async with AsyncRetouch(url, api_key=key) as client:
                return [entry async for entry in client.results(**filters)]

        return asyncio.run(read())

    return with_sync if request.param == "sync" else with_async


def stored(url: str, key: str, photo: bytes, mask: bytes, number: int) -> list[str]:
    """Make results and return their ids, newest first."""
    with Retouch(url, api_key=key) as client:
        urls = [client.inpaint(photo, mask).url or "" for _ in range(number)]
    return [one.rpartition("/")[2] for one in reversed(urls)]


def test_all_pages_are_listed_newest_first(
    listed: Listed, url: str, owner: Callable[..., str], photo: bytes, mask: bytes
) -> None:
    key = owner()
    ids = stored(url, key, photo, mask, 5)
    assert {entry.id for entry in listed(key, limit=2)} == set(ids)
    assert [entry.id for entry in listed(key, limit=2)] == [entry.id for entry in listed(key)]
    (first, *_) = listed(key)
    assert (first.model, first.media_type, first.width, first.height) == ("photos/1", "image/png", 64, 64)
    assert first.url == f"/v1/results/{first.id}"
    assert listed(owner()) == []


def test_filters_choose_by_model_time_and_state(
    listed: Listed, url: str, owner: Callable[..., str], photo: bytes, mask: bytes
) -> None:
    key = owner()
    (made,) = stored(url, key, photo, mask, 1)
    now = datetime.now(timezone.utc)
    for filters, found in (
        ({"model": "photos"}, [made]),
        ({"model": "photos/2"}, []),
        ({"created_from": now - timedelta(hours=1), "created_before": now + timedelta(hours=1)}, [made]),
        ({"created_from": datetime.now() + timedelta(hours=1)}, []),
        ({"created_before": datetime.now() - timedelta(hours=1)}, []),
    ):
        assert [entry.id for entry in listed(key, **filters)] == found, filters
    wait_until(lambda: [entry.id for entry in listed(key, status="saved")] == [made])  # until then it is `saving`
    assert listed(key, status="saving") == []
    with pytest.raises(InvalidOption):
        listed(key, limit=0)


def test_a_thumbnail_is_a_picture_and_a_deleted_result_is_gone(
    ask: Ask, url: str, owner: Callable[..., str], photo: bytes, mask: bytes
) -> None:
    key = owner()
    (made,) = stored(url, key, photo, mask, 1)
    small = ask(url, "thumbnail", f"/v1/results/{made}", client={"api_key": key})
    assert (small.media_type, small.image.size) == ("image/webp", (64, 64))
    assert ask(url, "delete_result", made, client={"api_key": key}) is None
    for call in ("delete_result", "thumbnail", "result"):
        with pytest.raises(Gone):
            ask(url, call, made, client={"api_key": key})


def test_only_the_owner_and_only_with_the_scope(
    ask: Ask, listed: Listed, url: str, owner: Callable[..., str], photo: bytes, mask: bytes
) -> None:
    (made,) = stored(url, owner(), photo, mask, 1)
    with pytest.raises(NotFound):
        ask(url, "delete_result", made, client={"api_key": owner()})
    with pytest.raises(Forbidden):
        ask(url, "delete_result", made, client={"api_key": owner("inference")})
    with pytest.raises(Forbidden):
        listed(owner("inference"))
