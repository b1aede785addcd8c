"""One user's results on every foreign route and over gRPC, tried by another; two front ends, results in a bucket."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest
from grpc import StatusCode

from tests.service.compat.foreign_requests import EDIT, GOOD, IMG2IMG, ForeignRequest
from tests.serving.backing.s3_server import KEY, SECRET, serving_bucket
from tests.serving.bad_request import MASK, MULTIPART, PHOTO, body_of, part
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.grpc_client import GrpcClient, files_request
from tests.serving.key_files import add_key
from tests.serving.ports import free_port
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
USER = ("inference", "results:read", "results:delete")
FRESH = {"Connection": "close"}
"""Header that gives each request its own connection, which the kernel assigns to any front end."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    folder = tmp_path_factory.mktemp("owners")
    with serving_bucket(folder) as bucket:
        settings = {
            "models_dir": write_photos_and_facades(folder / "models"),
            "workers": 2,
            "grpc_port": free_port(),
            "keys_file": folder / "keys.json",
            "results_url": "s3://results/shop",
            "s3_endpoint": f"http://127.0.0.1:{bucket.port}",
            "public_url": "http://images.example",
        }
        secrets = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        for user in ("anna", "bert"):
            (folder / user).write_text(add_key(folder / "keys.json", scopes=USER))
        with ServedProcess(folder, secrets, **settings) as process:
            yield process


@pytest.fixture
def anna(served: ServedProcess) -> Iterator[httpx.Client]:
    with user(served, "anna") as client:
        yield client


@pytest.fixture
def bert(served: ServedProcess) -> Iterator[httpx.Client]:
    with user(served, "bert") as client:
        yield client


def user(served: ServedProcess, name: str) -> httpx.Client:
    key = (served.folder / name).read_text()
    return httpx.Client(base_url=served.url, timeout=60, headers={"X-API-Key": key, **FRESH})


def asked(client: httpx.Client, good: ForeignRequest, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = client.post(good.path, content=good.body, headers={**good.headers, **named})
    assert reply.status_code == 200, reply.text
    return reply


def urls(client: httpx.Client) -> set[str]:
    reply = client.get("/v1/results", params={"limit": 100})
    assert reply.status_code == 200, reply.text
    return {one["url"] for one in reply.json()["results"]}


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.api)
def test_what_one_user_made_is_neither_listed_nor_deleted_by_another(
    anna: httpx.Client, bert: httpx.Client, good: ForeignRequest
) -> None:
    made = asked(anna, good).headers["Location"]
    wait_until(lambda: made in urls(anna))  # the other front end lists it up to 0.3 s later
    assert made not in urls(bert)
    assert bert.delete(made).status_code == 404
    assert anna.get(made).status_code == 200
    assert anna.delete(made).status_code in (202, 204)
    assert anna.get(made).status_code == 410
    assert bert.get(made).status_code == 404


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.api)
def test_the_same_idempotency_key_of_another_user_is_another_key(
    anna: httpx.Client, bert: httpx.Client, good: ForeignRequest
) -> None:
    key = f"shared-{good.api}"
    first, again = asked(anna, good, Idempotency_Key=key), asked(anna, good, Idempotency_Key=key)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    others = asked(bert, good, Idempotency_Key=key)
    assert "Idempotency-Replayed" not in others.headers
    assert others.headers["Location"] != first.headers["Location"]
    assert anna.delete(others.headers["Location"]).status_code == 404
    assert bert.delete(others.headers["Location"]).status_code in (202, 204)
    assert bert.post(good.path, content=good.body, headers={**good.headers, "Idempotency-Key": key}).status_code == 410
    assert asked(anna, good, Idempotency_Key=key).headers["Location"] == first.headers["Location"]


def test_a_key_that_is_a_password_makes_results_of_its_own_user(
    served: ServedProcess, anna: httpx.Client, bert: httpx.Client
) -> None:
    password = base64.b64encode(f"bert:{anna.headers['X-API-Key']}".encode()).decode()
    with httpx.Client(base_url=served.url, timeout=60, headers={"Authorization": f"Basic {password}"}) as client:
        made = asked(client, IMG2IMG).headers["Location"]
    assert bert.delete(made).status_code == 404  # the user name of Basic authentication is ignored
    assert anna.delete(made).status_code in (202, 204)


def test_what_one_user_made_over_grpc_is_neither_listed_nor_deleted_nor_repeated_by_another(
    served: ServedProcess, anna: httpx.Client, bert: httpx.Client
) -> None:
    address, request = str(served.lines("serving")[-1]["grpc"]), files_request(PHOTO, MASK)
    of_anna, of_bert = (GrpcClient(address, (served.folder / name).read_text()) for name in ("anna", "bert"))
    with of_anna, of_bert:
        made, others = (
            client.call("ModelInfer", request, idempotency_key="shared-grpc").trailing["location"]
            for client in (of_anna, of_bert)
        )
        assert others != made
        wait_until(lambda: made in urls(anna))
        assert made not in urls(bert)
        assert bert.delete(made).status_code == 404
        assert anna.delete(made).status_code in (202, 204)
        assert anna.get(made).status_code == 410
        assert of_anna.call("ModelInfer", request, idempotency_key="shared-grpc").code is StatusCode.NOT_FOUND
        again = of_bert.call("ModelInfer", request, idempotency_key="shared-grpc")
    assert (again.code, again.trailing["location"]) == (StatusCode.OK, others)


def test_a_link_opens_at_every_front_end_after_a_restart_and_until_its_owner_deletes_the_result(
    served: ServedProcess, anna: httpx.Client
) -> None:
    parts = (part("image", PHOTO, "a"), part("mask", MASK, "b"), part("mask_mode", b"white"))
    form = body_of(*parts, part("response_format", b"url"))
    reply = anna.post(EDIT.path, content=form, headers={"Content-Type": MULTIPART})
    assert reply.status_code == 200, reply.text
    link = reply.json()["data"][0]["url"].removeprefix("http://images.example")

    def opened() -> httpx.Response:
        return httpx.get(f"{served.url}{link}", headers={"Host": "images.example", **FRESH}, timeout=60)

    first = opened()
    assert first.status_code == 200, first.text
    assert {opened().content for _ in range(20)} == {first.content}
    served.terminate()
    served.start()
    assert {opened().content for _ in range(20)} == {first.content}
    with user(served, "bert") as bert, user(served, "anna") as again:
        assert bert.delete(reply.headers["Location"]).status_code == 404
        assert opened().status_code == 200
        assert again.delete(reply.headers["Location"]).status_code in (202, 204)
    assert {opened().status_code for _ in range(20)} == {410}
    assert link.partition("signature=")[2] not in served.log
