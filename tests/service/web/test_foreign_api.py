from __future__ import annotations

import json
from dataclasses import replace

import pytest

from service.compat.assembly import foreign_apis
from service.core.errors import InvalidImage, about_file
from service.core.settings import Settings
from service.web.foreign_api import ForeignPaths

APIS = foreign_apis(Settings().api_names)


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_a_path_under_its_prefix_belongs_to_a_foreign_api(api: object) -> None:
    paths = ForeignPaths(APIS)
    prefix = api.prefix  # type: ignore[attr-defined]
    assert paths.api_of(prefix) is api
    assert paths.api_of(f"{prefix}/anything") is api
    for other in (f"{prefix}anything", f"/before{prefix}", prefix[:-1], f"{prefix}\n"):
        assert paths.api_of(other) is not api


@pytest.mark.parametrize("path", ["/", "", "/v1/inpaint", "/readyz"])
def test_other_paths_belong_to_the_server_itself(path: str) -> None:
    assert ForeignPaths(APIS).api_of(path) is None
    assert ForeignPaths(()).api_of(path) is None


def test_of_two_prefixes_the_longer_one_counts() -> None:
    outer, inner = APIS[0], APIS[1]
    nested = type(inner)("nested", "", inner.router, f"{outer.prefix}/inner", inner.error_body)
    for order in ((outer, nested), (nested, outer)):
        assert ForeignPaths(order).api_of(f"{outer.prefix}/inner/x") is nested
        assert ForeignPaths(order).api_of(f"{outer.prefix}/other") is outer


def test_an_api_shares_the_paths_under_its_shared_prefix() -> None:
    openai = next(api for api in APIS if api.name == "openai")
    assert all(openai.shares(path) for path in ("/v1/models", "/v1/models/", "/v1/models/photos"))
    assert not any(openai.shares(path) for path in ("/v1/modelsX", "/v1/results", "/", ""))
    assert not any(api.shares("/") for api in APIS)


@pytest.mark.parametrize(("part", "named"), [("image", "picture"), ("mask", "mask")])
def test_an_error_about_a_field_has_its_foreign_name_and_nothing_else_is_renamed(part: str, named: str) -> None:
    def fail() -> None:
        raise InvalidImage("the file says `image`: no", advice="send another `image`")

    with pytest.raises(InvalidImage) as raised:
        about_file(part, fail)
    assert raised.value.field == part
    api = replace(APIS[0], fields={"image": "picture"}, error_body=lambda error: {"detail": str(error)})
    said = json.loads(bytes(api.error_response(raised.value).body))["detail"]
    assert said == f"`{named}`: the file says `image`: no; send another `image`"
