"""`response_format=url`: links in place of pictures, if the server has a public URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.serving.fake_models import fake_manifest, write_model
from tests.serving.local_server import Running, Serve

PUBLIC_URL = "https://images.example/shop"
URL = {"response_format": "url"}


@pytest.fixture
def linking(serve: Serve, models_dir: Path) -> Running:
    size = {"kind": "fixed", "height": 64, "width": 64, "fit": "resize"}
    write_model(models_dir, fake_manifest("faces", "generate", size=size))
    return serve(apis="openai", public_url=PUBLIC_URL, save=False)


@pytest.fixture
def links(linking: Running) -> Iterator[httpx.Client]:
    with linking.client(headers={"Host": "images.example"}) as client:
        yield client


def opened(client: httpx.Client, url: str) -> bytes:
    assert url.startswith(f"{PUBLIC_URL}/v1/results/")
    reply = client.get(url.removeprefix(PUBLIC_URL))
    assert reply.status_code == 200, reply.text
    return reply.content


def edit(client: httpx.Client, photo: bytes, alpha_mask: bytes, **fields: Any) -> httpx.Response:
    return client.post("/v1/images/edits", files={"image": photo, "mask": alpha_mask}, data=fields)


def test_a_fill_is_behind_its_link_although_the_server_saves_nothing_by_itself(
    links: httpx.Client, native: Callable[..., bytes], photo: bytes, alpha_mask: bytes
) -> None:
    reply = edit(links, photo, alpha_mask, **URL)
    assert reply.status_code == 200, reply.text
    (one,) = reply.json()["data"]
    assert set(one) == {"url"}
    assert opened(links, one["url"]) == native()


def test_the_host_of_the_request_has_no_say_in_the_link(linking: Running, photo: bytes, alpha_mask: bytes) -> None:
    forwarded = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http", "Forwarded": "host=evil.example"}
    with linking.client(headers={"Host": "127.0.0.9:1", **forwarded}) as client:
        assert edit(client, photo, alpha_mask, **URL).json()["data"][0]["url"].startswith(f"{PUBLIC_URL}/v1/")


def test_each_generated_picture_has_a_link(links: httpx.Client) -> None:
    asked = {"model": "faces", "n": 2, "seed": 7}
    found = links.post("/v1/images/generations", json={**asked, **URL}).json()["data"]
    fields = {"model": (None, "faces"), "count": (None, "2"), "seed": (None, "7"), "save": (None, "true")}
    ours = links.post("/v1/generate", files=fields).json()
    stored = [links.get(one["result_url"]).content for one in ours["images"]]
    assert [opened(links, one["url"]) for one in found] == stored


def test_the_openai_package_gets_links(linking: Running, photo: bytes, alpha_mask: bytes) -> None:
    with openai.OpenAI(base_url=f"{linking.url}/v1", api_key="none", max_retries=0) as package:
        reply = package.images.edit(image=photo, mask=alpha_mask, prompt="", response_format="url")
        assert reply.data is not None
        assert (reply.data[0].url or "").startswith(f"{PUBLIC_URL}/v1/results/")


def test_another_form_of_the_reply_is_another_request(links: httpx.Client, photo: bytes, alpha_mask: bytes) -> None:
    files, key = {"image": photo, "mask": alpha_mask}, {"Idempotency-Key": "links"}
    first = links.post("/v1/images/edits", files=files, data=URL, headers=key)
    again = links.post("/v1/images/edits", files=files, data=URL, headers=key)
    assert again.json() == first.json()
    refused = links.post("/v1/images/edits", files=files, headers=key)
    assert refused.json()["error"]["code"] == "idempotency_mismatch"


def test_a_repeated_request_is_410_once_its_result_is_deleted(
    links: httpx.Client, linking: Running, photo: bytes, alpha_mask: bytes
) -> None:
    files, key = {"image": photo, "mask": alpha_mask}, {"Idempotency-Key": "links"}
    url = links.post("/v1/images/edits", files=files, data=URL, headers=key).json()["data"][0]["url"]
    result_id = url.partition("/results/")[2][:32]
    linking.service.store.index.bury(result_id, "")
    assert links.get(url.removeprefix(PUBLIC_URL)).status_code == 410
    again = links.post("/v1/images/edits", files=files, data=URL, headers=key)
    assert (again.status_code, again.json()["error"]["code"]) == (410, "result_deleted")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"response_format": "url", "stream": "true"}, "stream"),
        ({"response_format": "url", "save": "false"}, "save=false"),
        ({"response_format": "uri"}, "send b64_json or url"),
    ],
)
def test_what_has_no_link_is_refused_in_openais_form(
    links: httpx.Client, photo: bytes, alpha_mask: bytes, fields: dict[str, str], words: str
) -> None:
    refused = edit(links, photo, alpha_mask, **fields)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_option")
    assert words in refused.json()["error"]["message"]


def test_a_server_without_a_public_url_says_so_before_it_computes(
    server: Running, client: httpx.Client, photo: bytes, alpha_mask: bytes
) -> None:
    before = server.executed
    refused = edit(client, photo, alpha_mask, **URL)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "links_off")
    assert "--public-url" in refused.json()["error"]["message"]
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert server.executed == before
