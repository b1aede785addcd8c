"""Bad requests over a raw socket: each quickly gets its documented answer and leaves nothing behind."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.serving.bad_fields import body_cases, field_cases, header_cases, part_cases, path_cases
from tests.serving.bad_images import image_cases, mask_cases
from tests.serving.bad_request import IMAGE_PART, MASK_PART, BadRequest, with_parts

pytestmark = pytest.mark.slow

Serve = Callable[..., Any]
CASES = [
    *(*image_cases(), *mask_cases(), *part_cases(), *field_cases()),
    *(*header_cases(), *body_cases(), *path_cases()),
]
"""Bad requests to a server with the models `photos` (inpaint) and `facades` (translate) and the default limits."""
BOMB = next(case for case in CASES if case.name == "image: bomb of 169 megapixels")


def answer(url: str, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers (names in lower case) and body of the first reply."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before all is sent
            connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def complaints(case: BadRequest, reply: tuple[int, dict[str, str], bytes]) -> str | None:
    """Return what is wrong with the reply; None if nothing is."""
    status, headers, body = reply
    if status != case.status:
        return f"{status} instead of {case.status}: {body[:200]!r}"
    if case.code is None:
        return None
    if headers["content-type"] != "application/problem+json":
        return f"content type {headers['content-type']}"
    problem = json.loads(body)
    if (problem["code"], problem["status"]) != (case.code, status) or len(problem["detail"]) < 10:
        return f"problem {problem}, code {case.code} expected"
    return None if problem["request_id"] == headers["x-request-id"] else "another request id in body and header"


def test_there_are_more_than_sixty_bad_requests_each_with_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


def test_every_bad_request_gets_its_documented_answer_and_the_server_lives_on(serve: Serve) -> None:
    running = serve()
    wrong = {case.name: why for case in CASES if (why := complaints(case, answer(running.url, case.raw())))}
    assert wrong == {}
    assert answer(running.url, BadRequest("alive", 200, None, "/readyz", "GET").raw())[0] == 200
    good = with_parts("good", 200, None, IMAGE_PART, MASK_PART)
    assert answer(running.url, good.raw())[0] == 200


def test_a_bomb_is_refused_in_less_than_50_ms_of_cpu_time(serve: Serve) -> None:
    running, request = serve(), BOMB.raw()
    assert len(request) < 500_000
    times_s = []
    for _ in range(5):
        started = time.process_time()  # the server is in this process
        assert answer(running.url, request)[0] == 413
        times_s.append(time.process_time() - started)
    assert min(times_s) < 0.05


def test_a_thousand_bad_requests_leave_less_than_50_mb_behind(serve: Serve) -> None:
    running, requests = serve(), [case.raw() for case in CASES]
    for request in requests:
        answer(running.url, request)
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    for request in islice(cycle(requests), 1_000):
        assert answer(running.url, request)[0] < 500
    gc.collect()
    assert process.memory_info().rss - before < 50e6


@pytest.mark.parametrize("name", ["image: jpeg cut in half", "field: quality=0", "mask: black"])
def test_a_problem_says_what_to_do(serve: Serve, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    problem = json.loads(answer(serve().url, case.raw())[2])
    assert problem["retryable"] is False
    assert problem["title"]
    assert problem["instance"] == "/v1/inpaint"
