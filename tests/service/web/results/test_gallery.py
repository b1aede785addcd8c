"""Lists, thumbnails, ranges and deletion over HTTP, with keys of two users."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.web.replies import Files, check_problem
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.key_files import add_key
from tests.serving.local_server import Running, serving

USER = ("inference", "results:read", "results:delete")


class Users:
    """A server's keys: two users, and a key for each single scope."""

    def __init__(self, path: Path) -> None:
        self.anna, self.bert = (add_key(path, scopes=USER) for _ in range(2))
        self.by_scope = {scope: add_key(path, scopes=[scope]) for scope in (*USER, "metrics")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gallery")


@pytest.fixture(scope="module")
def users(folder: Path) -> Users:
    return Users(folder / "keys.json")


@pytest.fixture(scope="module")
def running(folder: Path, users: Users) -> Iterator[Running]:
    assert users
    models = write_photos_and_facades(folder / "models")
    with serving(folder, models_dir=models, keys_file=str(folder / "keys.json")) as running:
        yield running


@pytest.fixture
def anna(running: Running, users: Users) -> Iterator[httpx.Client]:
    with running.client(headers={"X-API-Key": users.anna}) as client:
        yield client


@pytest.fixture
def bert(running: Running, users: Users) -> Iterator[httpx.Client]:
    with running.client(headers={"X-API-Key": users.bert}) as client:
        yield client


def stored(client: httpx.Client, files: Files) -> httpx.Response:
    reply = client.post("/v1/inpaint", files=files)
    assert reply.status_code == 200, reply.text
    return reply


def page(client: httpx.Client, **query: str | int) -> Any:
    reply = client.get("/v1/results", params=query)
    assert reply.status_code == 200, reply.text
    assert reply.headers["Cache-Control"] == "no-store"
    return reply.json()


def test_pages_follow_each_other_without_gap_or_repetition(anna: httpx.Client, files: Files) -> None:
    for _ in range(5):
        stored(anna, files)
    whole = [one["id"] for one in page(anna, limit=100)["results"]]
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        some = page(anna, limit=2, **cursor)
        found += [one["id"] for one in some["results"]]
        if some["next_cursor"] is None:
            break
        cursor = {"cursor": some["next_cursor"]}
    assert found == whole
    assert len(set(found)) == len(found) >= 5


def as_cursor(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "=", "%%%", "ä", "AAAA", "a" * 256),
        *map(as_cursor, ([], {}, None, [1, "0" * 32], [1, "0" * 32, "f" * 16])),
        *map(as_cursor, ([[], {}, []], ["x", 1, 2], [1e999, "0" * 32, "f" * 16])),
        *("[" * 200, as_cursor([1, "0" * 32, "f" * 16]) + "A"),
    ],
)
def test_a_garbled_cursor_is_refused(anna: httpx.Client, cursor: str) -> None:
    check_problem(anna.get("/v1/results", params={"cursor": cursor}), 422, "cursor_invalid")


def test_a_cursor_that_is_too_long_is_refused_by_its_length(anna: httpx.Client) -> None:
    check_problem(anna.get("/v1/results", params={"cursor": "A" * 257}), 422, "invalid_option")


def test_a_cursor_holds_for_its_owner_and_its_filter_alone(
    anna: httpx.Client, bert: httpx.Client, files: Files
) -> None:
    for _ in range(2):
        stored(anna, files)
        stored(bert, files)
    cursor = page(anna, limit=1, model="photos")["next_cursor"]
    assert page(anna, limit=2, model="photos", cursor=cursor)["results"]  # the limit is not a filter
    check_problem(bert.get("/v1/results", params={"model": "photos", "cursor": cursor}), 422, "cursor_invalid")
    for other in ({}, {"model": "photos/1"}, {"model": "photos", "status": "saved"}):
        check_problem(anna.get("/v1/results", params={**other, "cursor": cursor}), 422, "cursor_invalid")


@pytest.mark.parametrize(
    "query",
    [
        *({"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"status": "gone"}, {"created_from": "yesterday"}),
        *({"created_from": "2026-11-23T07:00:00"}, {"model": "../x"}, {"owner": "somebody"}, {"unknown": "1"}),
    ],
)
def test_a_filter_that_cannot_be_is_refused(anna: httpx.Client, query: dict[str, str]) -> None:
    check_problem(anna.get("/v1/results", params=query), 422, "invalid_option")


def test_an_invalid_model_name_is_explained_without_a_pattern(anna: httpx.Client) -> None:
    refused = check_problem(anna.get("/v1/results", params={"model": "My Model"}), 422, "invalid_option")
    said = "model: it is not a model name; send NAME or NAME/VERSION, such as photos/5 (GET /docs lists the parameters)"
    assert refused["detail"] == said


def test_an_unknown_query_parameter_is_named(anna: httpx.Client) -> None:
    refused = check_problem(anna.get("/v1/results", params={"modell": "photos"}), 422, "invalid_option")
    assert refused["detail"] == "unknown parameter modell (GET /docs lists the parameters)"


@pytest.mark.parametrize("name", ["created_from", "created_before"])
@pytest.mark.parametrize("written", ["0", "-1", "1700000000", "99999999999999", "1.5", "2026-11-23", "yesterday", ""])
def test_a_time_that_is_not_rfc_3339_is_refused_with_an_example(anna: httpx.Client, name: str, written: str) -> None:
    refused = check_problem(anna.get("/v1/results", params={name: written}), 422, "invalid_option")
    said = f"{name}: send a date and time as RFC 3339 with a time zone, such as 2026-11-23T07:00:00Z"
    assert refused["detail"].startswith(said)


@pytest.mark.parametrize("name", ["created_from", "created_before"])
@pytest.mark.parametrize("written", ["2026-11-28T00:00:00+00:00", "2026-11-28+07:30:15.5+0100"])
def test_a_time_zone_whose_plus_became_a_space_is_explained(anna: httpx.Client, name: str, written: str) -> None:
    refused = check_problem(anna.get(f"/v1/results?{name}={written}"), 422, "invalid_option")
    said = f"{name}: in an address + is a space: write the + of a time zone as %2B, UTC as Z"
    assert refused["detail"].startswith(said)
    zone_at = written.rindex("+")
    escaped = f"{written[:zone_at]}%2B{written[zone_at + 1 :]}"
    assert anna.get(f"/v1/results?{name}={escaped}").status_code == 200


@pytest.mark.parametrize("query", ["limit=1&limit=2", "limit=1&model=photos&limit=1", "status=saved&status="])
def test_a_parameter_that_is_given_twice_is_refused(anna: httpx.Client, query: str) -> None:
    name = query.partition("=")[0]
    problem = check_problem(anna.get(f"/v1/results?{query}"), 422, "invalid_option")
    assert problem["detail"].startswith(f"`{name}` is given 2 times")


def test_a_range_of_a_result_is_sent_alone(anna: httpx.Client, files: Files) -> None:
    made = stored(anna, files)
    url, size = made.headers["Location"], len(made.content)
    for asked, first, last in (
        ("0-9", 0, 9),
        ("5-", 5, size - 1),
        ("-7", size - 7, size - 1),
        ("0-99999999", 0, size - 1),
    ):
        part = anna.get(url, headers={"Range": f"bytes={asked}"})
        assert (part.status_code, part.content) == (206, made.content[first : last + 1]), asked
        assert part.headers["Content-Range"] == f"bytes {first}-{last}/{size}"
    outside = anna.get(url, headers={"Range": f"bytes={size}-"})
    check_problem(outside, 416, "range_not_satisfiable")
    assert outside.headers["Content-Range"] == f"bytes */{size}"
    for whole in ("bytes=0-1,5-6", "lines=0-1", "bytes=9-1", "bytes=-", "0-1"):
        assert anna.get(url, headers={"Range": whole}).status_code == 200, whole
    assert anna.head(url, headers={"Range": "bytes=0-9"}).headers["Content-Length"] == str(size)


def test_a_range_is_for_the_version_that_if_range_names(anna: httpx.Client, files: Files) -> None:
    url = stored(anna, files).headers["Location"]
    tag = anna.get(url).headers["ETag"]
    for condition, status in (
        (tag, 206),
        (f"W/{tag}", 200),
        ('"other"', 200),
        ("Mon, 23 Nov 2026 07:00:00 GMT", 200),
    ):
        asked = {"Range": "bytes=0-9", "If-Range": condition}
        assert anna.get(url, headers=asked).status_code == status, condition
    known = anna.get(url, headers={"Range": "bytes=0-9", "If-None-Match": tag})
    assert (known.status_code, known.content) == (304, b"")
    sidecar = anna.get(url, headers={"Range": "bytes=0-9", "Accept": "application/json"})
    assert sidecar.json()["model"] == "photos/1"


def test_a_thumbnail_is_asked_for_again_by_its_entity_tag(anna: httpx.Client, bert: httpx.Client, files: Files) -> None:
    url = f"{stored(anna, files).headers['Location']}/thumbnail"
    small = anna.get(url)
    assert (small.status_code, small.headers["Content-Type"]) == (200, "image/webp")
    assert small.headers["Cache-Control"] == "private, no-cache"
    tag = small.headers["ETag"]
    for tags in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        known = anna.get(url, headers={"If-None-Match": tags})
        assert (known.status_code, known.content, known.headers["ETag"]) == (304, b"", tag), tags
    assert anna.get(url, headers={"If-None-Match": '"other"'}).content == small.content
    assert anna.head(url).headers["Content-Length"] == str(len(small.content))
    assert bert.get(url).status_code == 200  # any key may read a result whose id it knows


def test_a_deleted_result_is_410_for_its_owner_and_404_for_all_others(
    anna: httpx.Client, bert: httpx.Client, files: Files
) -> None:
    url = stored(anna, files).headers["Location"]
    tag = anna.get(url).headers["ETag"]
    small_tag = anna.get(f"{url}/thumbnail").headers["ETag"]
    check_problem(bert.delete(url), 404, "not_found")
    assert bert.get(url).status_code == 200
    assert anna.delete(url).status_code == 204
    for path, headers in (
        (url, {}),
        (url, {"If-None-Match": tag}),
        (url, {"Range": "bytes=0-9"}),
        (url, {"Accept": "application/json"}),
        (f"{url}/thumbnail", {}),
        (f"{url}/thumbnail", {"If-None-Match": small_tag}),
    ):
        check_problem(anna.get(path, headers=headers), 410, "result_deleted")
        check_problem(bert.get(path, headers=headers), 404, "not_found")
    check_problem(anna.delete(url), 410, "result_deleted")
    check_problem(bert.delete(url), 404, "not_found")
    assert url not in [one["url"] for one in page(anna, limit=100)["results"]]


@pytest.mark.parametrize("path", ["/v1/results/none", f"/v1/results/{'0' * 32}", f"/v1/results/{'A' * 32}"])
def test_what_never_was_can_neither_be_deleted_nor_shown_small(anna: httpx.Client, path: str) -> None:
    check_problem(anna.delete(path), 404, "not_found")
    check_problem(anna.get(f"{path}/thumbnail"), 404, "not_found")


def test_each_call_needs_its_own_scope(running: Running, users: Users, anna: httpx.Client, files: Files) -> None:
    url = stored(anna, files).headers["Location"]
    for method, path, scopes in (
        ("GET", "/v1/results", {"results:read"}),
        ("GET", url, {"inference", "results:read"}),
        ("GET", f"{url}/thumbnail", {"inference", "results:read"}),
        ("DELETE", url, {"results:delete"}),
    ):
        for scope, key in users.by_scope.items():
            with running.client(headers={"X-API-Key": key}) as client:
                reply = client.request(method, path)
            if scope in scopes:  # a result of another key cannot be deleted with any scope
                assert reply.status_code == (404 if method == "DELETE" else 200), (method, path, scope)
            else:
                check_problem(reply, 403, "forbidden")
    assert anna.get(url).status_code == 200
