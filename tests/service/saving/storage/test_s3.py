"""The S3 storage against a real server that is good, slow, failing or gone."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import obstore
import pytest
from obstore.store import S3Store

from service.core.errors import NotReady, ServiceError
from service.core.settings import SettingsInvalid
from service.saving.results import StoredResult
from service.saving.spool.capacity import Backoff, SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.storage.s3 import ObjectLocation, ObjectStorage, open_object_storage
from service.saving.store import ResultStore
from tests.fakes.captured_logs import capture_logs

ID = "ab" + "0" * 30
BODY = bytes(range(256)) * 400
SIDECAR = {"id": ID, "media_type": "image/png", "model": "photos/1"}
QUICK = Backoff(first_s=0.01, longest_s=0.05)
pytestmark = pytest.mark.usefixtures("keys")


def storage_at(url: str) -> ObjectStorage:
    return open_object_storage(ObjectLocation("s3://results/some/prefix", url, timeout_s=10.0))


def test_a_result_is_two_objects_and_comes_back_whole(bucket: Any) -> None:
    storage = storage_at(f"http://127.0.0.1:{bucket.port}")
    assert storage.read(ID) is None
    storage.write(BODY, SIDECAR)
    storage.write(BODY, SIDECAR)
    assert bucket.names == {f"some/prefix/ab/{ID}.png", f"some/prefix/ab/{ID}.json"}
    assert storage.read(ID) == (BODY, "image/png")
    assert storage.read_sidecar(ID) == SIDECAR
    stored = {one.name: one for one in storage.entries()}
    assert stored[f"ab/{ID}.png"].size == len(BODY)
    assert {one.result_id for one in stored.values()} == {ID}
    for name in stored:
        storage.delete(name)
    storage.delete(f"ab/{ID}.png")
    assert bucket.names == set()
    assert list(storage.entries()) == []


def test_a_damaged_sidecar_is_an_error_that_says_so(bucket: Any) -> None:
    storage = storage_at(f"http://127.0.0.1:{bucket.port}")
    storage.write(BODY, SIDECAR)
    storage.put(f"ab/{ID}.json", b"{", "application/json")
    with pytest.raises(ServiceError, match="damaged"):
        storage.read(ID)


@pytest.mark.parametrize("mood", ["failing", "gone"])
def test_a_storage_that_is_not_there_is_an_error_and_not_a_missing_result(proxy: Any, mood: str) -> None:
    storage = storage_at(proxy.url)
    storage.write(BODY, SIDECAR)
    proxy.become(mood)
    fresh = storage_at(proxy.url)
    with pytest.raises(OSError, match="Error"):
        fresh.write(BODY, SIDECAR)
    with pytest.raises(NotReady) as refused:
        fresh.read(ID)
    assert refused.value.code == "storage_unavailable"
    with pytest.raises(OSError, match="Error"):
        list(fresh.entries())
    proxy.become("good")
    assert fresh.read(ID) == (BODY, "image/png")


def test_wrong_keys_are_an_error_that_names_no_key(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    storage = storage_at(f"http://127.0.0.1:{bucket.port}")
    with pytest.raises(OSError, match="403") as failed:
        storage.write(BODY, SIDECAR)
    assert "secret" not in str(failed.value)
    assert "test-key" not in str(failed.value)


def test_keys_may_come_from_the_shared_file(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "credentials"
    path.write_text(
        "[default]\naws_access_key_id = test-key\naws_secret_access_key = test-secret-that-must-not-be-logged\n"
    )
    location = ObjectLocation("s3://results", f"http://127.0.0.1:{bucket.port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    storage = open_object_storage(location, {"AWS_SHARED_CREDENTIALS_FILE": str(path)})
    storage.write(BODY, SIDECAR)
    assert bucket.names == {f"ab/{ID}.png", f"ab/{ID}.json"}


@pytest.mark.parametrize(
    "url",
    ["results", "http://host/results", "s3://", "s3://me:secret@results/x", "s3://me:secret/x@results", "s3://a?b=c"],
)
def test_a_url_that_is_no_bucket_stops_the_start(url: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"s3://BUCKET/PREFIX") as refused:
        open_object_storage(ObjectLocation(url))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "endpoint",
    ["minio:9000", "minio", "ftp://minio", "http://", "http://a b", "http://minio:x", "http://me:secret@minio"],
)
def test_an_endpoint_that_is_no_address_stops_the_start(endpoint: str) -> None:
    for location, environ in (
        (ObjectLocation("s3://results", endpoint), {}),
        (ObjectLocation("s3://results"), {"AWS_ENDPOINT_URL": endpoint}),
    ):
        with pytest.raises(SettingsInvalid, match=r"is not http\(s\)://HOST:PORT") as refused:
            open_object_storage(location, environ)
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("endpoint", ["http://minio:9000", "https://s3.example.com/", "http://[::1]:9000/under/a/path"])
def test_an_endpoint_may_have_a_port_and_a_path(endpoint: str) -> None:
    open_object_storage(ObjectLocation("s3://results", endpoint))


def test_a_panic_of_the_client_is_an_error_like_others_and_ends_no_thread_that_saves() -> None:
    client = S3Store("results", endpoint="minio:9000", region="us-east-1", retry_config={"max_retries": 0})
    storage = ObjectStorage(client, obstore)
    for call in (
        lambda: storage.write(BODY, SIDECAR),
        lambda: storage.load("x"),
        lambda: storage.delete("x"),
        lambda: list(storage.entries()),
    ):
        with pytest.raises(OSError, match="PanicException"):
            call()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_what_ends_a_process_or_a_task_goes_through_the_client_unchanged(kind: type[BaseException]) -> None:
    class Interrupted:
        def put(self, *_: object, **__: object) -> None:
            raise kind

    with pytest.raises(kind):
        ObjectStorage(None, Interrupted()).write(BODY, SIDECAR)


def test_a_credentials_file_that_is_damaged_later_fails_a_save_and_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = hush\n")
    storage = open_object_storage(
        ObjectLocation("s3://results", "http://127.0.0.1:1"), {"AWS_SHARED_CREDENTIALS_FILE": str(path)}
    )
    path.write_text("aws_secret_access_key = hush\n")
    with pytest.raises(OSError, match="not a credentials file") as failed:
        storage.write(BODY, SIDECAR)
    assert "hush" not in str(failed.value)


def test_a_missing_client_stops_the_start_and_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(SettingsInvalid, match="extra `s3`"):
        open_object_storage(ObjectLocation("s3://results"))


def test_results_outlive_a_storage_that_is_slow_then_fails_then_is_unreachable(proxy: Any, tmp_path: Path) -> None:
    """Every result is readable from `put` on, whatever the storage does, and is eventually uploaded."""
    spool_files = SpoolFiles(SpoolOwner(tmp_path / "spool", lambda: uuid4().hex))
    limits = SpoolLimits(1000, 2**30)
    ids = [uuid4().hex for _ in range(20)]
    with (
        capture_logs() as lines,
        ResultStore(storage_at(proxy.url), spool_files, limits, threads=4, backoff=QUICK) as store,
    ):
        for number, mood in enumerate(("slow", "failing", "gone", "good")):
            proxy.become(mood)
            for result_id in ids[number * 5 : number * 5 + 5]:
                store.put(store.reserve(10), StoredResult(result_id, BODY, "image/png", {}))
                assert store.get(result_id) == (BODY, "image/png")
            if mood in ("failing", "gone"):
                assert store.pending > 0
        assert store.flush(30) == 0
        assert all(store.get(result_id) == (BODY, "image/png") for result_id in ids)
    assert all(storage_at(proxy.url).read(result_id) == (BODY, "image/png") for result_id in ids)
    assert not any("secret" in str(line) for line in lines)


def test_results_spooled_while_the_storage_was_unreachable_are_uploaded_by_the_next_start(
    proxy: Any, tmp_path: Path
) -> None:
    def store() -> ResultStore:
        spool_files = SpoolFiles(SpoolOwner(tmp_path / "spool", lambda: uuid4().hex))
        return ResultStore(storage_at(proxy.url), spool_files, SpoolLimits(1000, 2**30), backoff=QUICK)

    proxy.become("gone")
    ids = [uuid4().hex for _ in range(5)]
    with store() as before:
        for result_id in ids:
            before.put(before.reserve(10), StoredResult(result_id, BODY, "image/png", {}))
        assert before.flush(0.1) == 5
    proxy.become("good")
    with store() as after:
        assert after.flush(30) == 0
    assert all(storage_at(proxy.url).read(result_id) == (BODY, "image/png") for result_id in ids)
