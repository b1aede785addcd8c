"""The client that a request comes from, and the client's rate and quota."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from service.auth.clients import Clients
from service.auth.keys import KeysInvalid, key_id_of, read_keys, with_key_revoked, write_keys
from service.core.errors import Forbidden, TooManyRequests, Unauthorised
from tests.fakes.captured_logs import capture_logs
from tests.fakes.descriptors import no_descriptors_left
from tests.serving.key_files import add_key


@dataclass
class Time:
    seconds: float = 0.0
    date: datetime = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)

    def clock(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return self.date


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def loaded(path: Path, time: Time) -> Clients:
    clients = Clients(time.clock, time.now, path)
    clients.load()
    return clients


def identify(clients: Clients, *headers: tuple[str, str]) -> str:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return clients.identify(Headers(raw=raw), "192.0.2.1").id


def refusal(clients: Clients, *headers: tuple[str, str]) -> str:
    with pytest.raises(Unauthorised) as refused:
        identify(clients, *headers)
    return refused.value.code


def test_without_a_key_file_a_client_is_its_address_and_nothing_is_limited(time: Time) -> None:
    clients = Clients(time.clock, time.now)
    clients.load()
    client = clients.identify(Headers({"X-API-Key": "whatever"}), "192.0.2.1")
    assert client.id == "address:192.0.2.1"
    for _ in range(1000):
        clients.charge(client, work=True)


def test_both_headers_are_understood_and_name_the_same_client(path: Path, time: Time) -> None:
    key = add_key(path)
    clients = loaded(path, time)
    ids = {
        identify(clients, pair) for pair in (("Authorization", f"Bearer {key}"), ("authorization", f"bearer  {key}"))
    }
    assert ids | {identify(clients, ("X-API-Key", key))} == {f"key:{key_id_of(key)}"}


def test_why_a_key_is_refused_is_revealed_only_to_its_holder(path: Path, time: Time) -> None:
    good = add_key(path)
    late = add_key(path, expires_at=time.date)
    gone = add_key(path, revoked_at=time.date)
    clients = loaded(path, time)
    assert refusal(clients) == "no_key"
    assert refusal(clients, ("X-API-Key", "")) == "unknown_key"
    assert refusal(clients, ("X-API-Key", good[:-4] + "AAAA")) == "unknown_key"
    assert refusal(clients, ("X-API-Key", "rtk_00000000_" + "a" * 43)) == "unknown_key"
    assert refusal(clients, ("X-API-Key", "\xff" * 60)) == "unknown_key"
    assert refusal(clients, ("Authorization", f"Basic {good}")) == "unknown_key"
    assert refusal(clients, ("X-API-Key", late)) == "expired_key"
    assert refusal(clients, ("X-API-Key", gone)) == "revoked_key"
    assert refusal(clients, ("X-API-Key", gone[:-4] + "AAAA")) == "unknown_key"


@pytest.mark.parametrize(
    ("of_file", "sent", "said"),
    [
        ({}, "", "the key is empty; send a key: Authorization: Bearer KEY, or X-API-Key: KEY"),
        (
            {},
            "rtk_00000000_a",
            "not known; check that it was copied completely, or ask the server's operator for a new one",
        ),
        ({"expires_at": Time.date}, None, "has expired; ask the server's operator for a new one"),
        ({"revoked_at": Time.date}, None, "was revoked; ask the server's operator for a new one"),
    ],
    ids=["empty", "unknown", "expired", "revoked"],
)
def test_a_refusal_of_a_key_says_what_to_do(
    path: Path, time: Time, of_file: dict[str, Any], sent: str | None, said: str
) -> None:
    key = add_key(path, **of_file)
    with pytest.raises(Unauthorised, match=said):
        identify(loaded(path, time), ("X-API-Key", key if sent is None else sent))


def test_two_keys_in_one_request_are_refused(path: Path, time: Time) -> None:
    key = add_key(path)
    clients = loaded(path, time)
    assert refusal(clients, ("X-API-Key", key), ("X-API-Key", key)) == "several_keys"
    assert refusal(clients, ("X-API-Key", key), ("Authorization", f"Bearer {key}")) == "several_keys"


def test_a_client_may_do_what_its_scopes_say(path: Path, time: Time) -> None:
    key = add_key(path, scopes=["metrics"])
    client = loaded(path, time).identify(Headers({"X-API-Key": key}), "")
    client.require("metrics")
    with pytest.raises(Forbidden, match="'inference'"):
        client.require("inference")


def test_rate_and_quota_are_per_key_and_have_a_retry_after(path: Path, time: Time) -> None:
    limited = add_key(path, rate_per_s=2.0, burst=2, requests_per_day=3)
    free = add_key(path)
    clients = loaded(path, time)
    client = clients.identify(Headers({"X-API-Key": limited}), "")
    other = clients.identify(Headers({"X-API-Key": free}), "")
    clients.charge(client, work=True)
    clients.charge(client, work=False)
    with pytest.raises(
        TooManyRequests, match=r"limit of 2 requests a second is exceeded; wait for Retry-After"
    ) as refused:
        clients.charge(client, work=True)
    assert (refused.value.code, refused.value.retry_after_s) == ("rate_limited", 0.5)
    time.seconds += 1.0
    clients.charge(client, work=True)
    clients.charge(client, work=True)
    time.seconds += 1.0
    clients.charge(client, work=False)  # only requests for pictures count against the quota
    with pytest.raises(TooManyRequests) as refused:
        clients.charge(client, work=True)
    assert (refused.value.code, refused.value.retry_after_s) == ("quota_exhausted", 12 * 3600)
    for _ in range(100):
        clients.charge(other, work=True)
    time.date += timedelta(hours=12)
    time.seconds += 43200
    clients.charge(client, work=True)


def test_a_changed_key_file_is_applied_and_usage_is_kept(path: Path, time: Time) -> None:
    key = add_key(path, requests_per_day=1)
    clients = loaded(path, time)
    client = clients.identify(Headers({"X-API-Key": key}), "")
    clients.charge(client, work=True)
    assert clients.read_changed_keys() is None  # nothing changed
    added = add_key(path)
    records = clients.read_changed_keys()
    assert records is not None
    clients.replace_keys(records)
    assert identify(clients, ("X-API-Key", added)) == f"key:{key_id_of(added)}"
    with pytest.raises(TooManyRequests):
        clients.charge(client, work=True)
    write_keys(path, with_key_revoked(read_keys(path), key_id_of(key) or "", time.date))
    clients.replace_keys(clients.read_changed_keys() or ())
    assert refusal(clients, ("X-API-Key", key)) == "revoked_key"


def test_the_usage_of_keys_that_stay_is_kept_and_that_of_removed_keys_forgotten(path: Path, time: Time) -> None:
    stays, returns = (add_key(path, rate_per_s=1.0, burst=1, requests_per_day=1) for _ in range(2))
    clients = loaded(path, time)
    both = [clients.identify(Headers({"X-API-Key": key}), "") for key in (stays, returns)]
    for client in both:
        clients.charge(client, work=True)
    records = read_keys(path)
    clients.replace_keys(records[:1])
    clients.charge(both[1], work=True)  # its request was identified just before
    clients.replace_keys(records)
    with pytest.raises(TooManyRequests, match="a second"):
        clients.charge(both[0], work=True)
    clients.charge(both[1], work=True)


def test_a_broken_or_missing_key_file_leaves_the_old_keys_valid(path: Path, time: Time) -> None:
    key = add_key(path)
    clients = loaded(path, time)
    for breakage in (lambda: path.write_text("{"), path.unlink):
        breakage()
        assert clients.read_changed_keys() is None
        assert identify(clients, ("X-API-Key", key)) == f"key:{key_id_of(key)}"
        assert refusal(clients) == "no_key"


def test_an_unreadable_key_file_is_read_later_even_if_unchanged(path: Path, time: Time) -> None:
    """Mending its permissions changes neither its modification time nor its size."""
    key = add_key(path)
    clients = loaded(path, time)
    write_keys(path, with_key_revoked(read_keys(path), key_id_of(key) or "", time.date))
    with no_descriptors_left(), capture_logs() as logs:
        assert clients.read_changed_keys() is None
        assert clients.read_changed_keys() is None
    assert [entry["event"] for entry in logs] == ["keys not reloaded"]  # logged once for each reason
    clients.replace_keys(clients.read_changed_keys() or ())
    assert refusal(clients, ("X-API-Key", key)) == "revoked_key"
    assert clients.read_changed_keys() is None


def test_wrong_content_is_not_read_again_until_it_changes(path: Path, time: Time) -> None:
    key = add_key(path)
    clients = loaded(path, time)
    right, modified_ns = path.read_bytes(), path.stat().st_mtime_ns + 10**9
    for content in (b" " * len(right), right):  # equal in size and modification time
        path.write_bytes(content)
        os.utime(path, ns=(modified_ns, modified_ns))
        assert clients.read_changed_keys() is None
    os.utime(path, ns=(modified_ns, modified_ns + 1))
    assert [found.id for found in clients.read_changed_keys() or ()] == [key_id_of(key)]


def test_a_start_without_a_readable_file_fails(path: Path, time: Time) -> None:
    with pytest.raises(KeysInvalid):
        loaded(path, time)
