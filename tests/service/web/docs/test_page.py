"""The documentation page loads nothing from other hosts; its content security policy has no exception for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

from tests.serving.local_server import Running

Serve = Callable[..., Any]


def test_everything_that_the_page_loads_is_ours(server: Running) -> None:
    with server.client() as client:
        page = client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        wanted = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        loaded = [urljoin("/docs", address) for address in wanted if not address.startswith("data:")]
        assert loaded == ["/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/docs/start.js"]
        for address in loaded:
            assert client.get(address).status_code == 200, address
        assert "SwaggerUIBundle" in client.get("/docs/swagger-ui-bundle.js").text
        assert client.get("/docs/start.js").headers["content-type"].startswith("text/javascript")


def test_the_policy_allows_scripts_from_here_alone_and_the_page_has_none_inside(server: Running) -> None:
    with server.client() as client:
        page = client.get("/docs")
    policy = dict(rule.strip().split(" ", 1) for rule in page.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert re.findall(r"<script(?![^>]*src=)", page.text) == []


def test_the_document_says_how_to_send_a_key_and_what_happens_without(server: Running) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
    call = document["paths"]["/v1/inpaint"]["post"]
    assert {"401", "403", "429"} <= set(call["responses"])
    assert call["security"] == [{}, {"bearer": []}, {"header": []}]
    assert "401" not in document["paths"]["/livez"]["get"]["responses"]
