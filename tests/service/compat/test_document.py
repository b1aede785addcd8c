"""The OpenAPI document with foreign APIs: it has every route, with a tag, a name and the API's error schema."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from service.compat.assembly import foreign_apis
from service.core.settings import FOREIGN_APIS, Settings, SettingsInvalid, load_settings
from service.web.foreign_api import ForeignPaths
from tests.serving.local_server import Running


@pytest.fixture
def document(server: Running) -> dict[str, Any]:
    with server.client() as client:
        return client.get("/openapi.json").json()


def test_every_setting_has_its_api_and_every_route_is_documented(document: dict[str, Any]) -> None:
    apis = foreign_apis(FOREIGN_APIS)
    paths = ForeignPaths(apis)
    assert {api.name for api in apis} == set(FOREIGN_APIS)
    for api in apis:
        routes = {route.path for route in api.router.routes if isinstance(route, APIRoute)}
        assert routes == {path for path in document["paths"] if paths.api_of(path) is api}
        assert api.name in {tag["name"] for tag in document["tags"]}


def test_errors_are_documented_in_their_own_form(document: dict[str, Any]) -> None:
    paths = ForeignPaths(foreign_apis(FOREIGN_APIS))
    for path, calls in document["paths"].items():
        own = paths.api_of(path) is None
        for call in calls.values():
            assert ("default" in call["responses"]) != own, path
            assert ("application/problem+json" in str(call["responses"])) == own, path
            assert set(re.findall(r"{(\w+)}", path)) <= {one["name"] for one in call.get("parameters", ())}
    names = [call["operationId"] for calls in document["paths"].values() for call in calls.values()]
    assert len(set(names)) == len(names)


def test_probes_need_no_key_and_all_else_does(document: dict[str, Any]) -> None:
    public = {path for path, calls in document["paths"].items() for call in calls.values() if "security" not in call}
    assert public == {"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"}


def test_the_setting_names_apis_and_refuses_others() -> None:
    assert Settings().api_names == set(FOREIGN_APIS)
    assert Settings(apis=" openai, iopaint ").api_names == {"openai", "iopaint"}
    assert Settings(apis="").api_names == frozenset()
    with pytest.raises(SettingsInvalid, match=r"'openia' is not one of openai"):
        load_settings({"apis": "openia"}, environ={})
