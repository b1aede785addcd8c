"""Jobs' orders and kept answers in a real bucket: stored whole or not at all; refused while it is unreachable."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import NotReady, ServiceError
from service.core.order import Order
from service.core.schemas import OPTIONS
from service.fleet.shared_files import SharedOrders, SharedResponses
from service.repeats.idempotency_table import Claim
from service.repeats.response_files import StoredResponse
from service.saving.storage.s3 import ObjectLocation, ObjectStorage, open_object_storage
from tests.fakes.captured_logs import capture_logs
from tests.serving.backing.s3_server import KEY, SECRET, Bucket, serving_bucket
from tests.serving.ports import free_port

JOB = "ab" * 16
HELD = Claim("ab12" * 8, "print", "host-1", 0.0)


FIRST_TOGETHER = """
import importlib, sys, threading
import msgspec
from service.fleet import shared_files

class Objects:
    def load(self, name):
        start.wait()
        return msgspec.msgpack.encode({"task": "translate", "options": {}, "files": {}})

sys.setswitchinterval(1e-6)
for _ in range(100):
    start = threading.Barrier(4)
    orders = importlib.reload(shared_files).SharedOrders(Objects())
    threads = [threading.Thread(target=orders.find, args=("ab" * 16,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with serving_bucket(tmp_path) as running:
        yield running


def storage_at(port: int) -> ObjectStorage:
    return open_object_storage(ObjectLocation("s3://results", f"http://127.0.0.1:{port}"))


def order(**options: Any) -> Order:
    return Order("inpaint", {"image": b"\x89P", "mask": b"\0"}, OPTIONS["inpaint"].model_validate(options))


def test_an_order_comes_back_as_it_was_until_it_is_dropped(bucket: Bucket) -> None:
    orders = SharedOrders(storage_at(bucket.port))
    orders.keep(JOB, order(format="webp"))
    assert orders.find(JOB) == order(format="webp")
    assert orders.older_than(time.time() + 60) == [JOB]
    assert orders.older_than(time.time() - 60) == []
    orders.drop(JOB)
    with pytest.raises(ServiceError, match="missing from the bucket") as lost:
        orders.find(JOB)
    assert lost.value.code == "order_lost"
    with pytest.raises(ValueError, match="is not a job id"):
        orders.keep("../escape", order())


def test_an_answer_belongs_to_one_claim_on_a_key(bucket: Bucket) -> None:
    responses = SharedResponses(storage_at(bucket.port))
    answer = StoredResponse(200, (("content-type", "image/png"),), b"\x89PNG", ("cd" * 16,))
    assert responses.find(HELD) is None
    responses.keep(HELD, answer)
    assert responses.find(HELD) == answer
    assert responses.find(replace(HELD, owner="host-2")) is None
    assert responses.find(replace(HELD, expires_at=0.1)) is None, "another claim of the same process"
    responses.replace_deleted(HELD)
    found = responses.find(HELD)
    assert found is not None
    assert found.deleted
    responses.drop(HELD)
    assert responses.find(HELD) is None


def test_while_the_bucket_is_unavailable_nothing_is_stored_and_the_error_says_so(bucket: Bucket) -> None:
    away = storage_at(free_port())
    orders, responses = SharedOrders(away), SharedResponses(away)
    for call in (
        lambda: orders.keep(JOB, order()),
        lambda: orders.find(JOB),
        lambda: responses.keep(HELD, StoredResponse(200, (), b"")),
        lambda: responses.find(HELD),
    ):
        with pytest.raises(NotReady) as refused:
            call()
        assert refused.value.code == "storage_unavailable"
    with capture_logs() as logs:
        orders.drop(JOB)
    assert "could not be deleted from the bucket" in logs[0]["event"]


def test_the_first_orders_of_a_process_may_be_read_by_several_threads_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", FIRST_TOGETHER], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
