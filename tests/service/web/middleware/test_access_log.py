"""Every request has an id, a log line and an answer, even when a handler fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.saving.reader import ResultReader
from tests.serving.local_server import Running

Serve = Callable[..., Any]


class FailingReader(ResultReader):
    """A body that fails with an unforeseen error."""

    async def image(self, result_id: str) -> tuple[bytes, str] | None:
        raise RuntimeError(f"/secret/path of {result_id} is gone")


def test_a_failure_of_our_own_is_a_problem_that_tells_nothing_of_our_inside(serve: Serve) -> None:
    running = serve()
    running.service.results.close()
    running.service.results = FailingReader(running.service.store)
    with running.client() as client:
        response = client.get(f"/v1/results/{'a' * 32}", headers={"X-Request-ID": "r9"})
        assert client.get("/livez").status_code == 200
        assert 'code="500",endpoint="/v1/results/{result_id}"' in client.get("/metrics").text
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (body["code"], body["request_id"], body["retryable"]) == ("internal", "r9", False)
    assert "secret" not in response.text


def test_http_exceptions_of_the_framework_are_problems_too(server: Running) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", content=b"{", headers={"Content-Type": "application/json"})
        assert (response.status_code, response.json()["code"]) == (415, "unsupported_type")
        assert client.request("PATCH", "/v1/models").json()["code"] == "method_not_allowed"
        assert client.get("/v1/models/").status_code in (307, 404)
