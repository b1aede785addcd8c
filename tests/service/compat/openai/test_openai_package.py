"""The openai package against the server; tests/foreign_clients has more of it, and other clients."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import openai
import pytest
from openai.types import ImageEditCompletedEvent, ImageGenCompletedEvent, ImagesResponse, Model

from tests.serving.local_server import Running


@pytest.fixture
def package(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_it_edits_streams_and_lists(
    package: openai.OpenAI, photo: bytes, alpha_mask: bytes, native: Callable[..., bytes]
) -> None:
    reply = package.images.edit(image=photo, mask=alpha_mask, prompt="", extra_body={"seed": 7})
    assert reply.data is not None
    assert base64.b64decode(reply.data[0].b64_json or "") == native()
    (event,) = package.images.edit(image=[photo], mask=alpha_mask, prompt="", stream=True)
    assert base64.b64decode(event.b64_json) == native()
    assert [model.id for model in package.models.list()] == ["facades", "faces", "photos"]


def test_it_retrieves_each_model_that_it_lists_and_no_other(package: openai.OpenAI) -> None:
    for model in package.models.list():
        assert package.models.retrieve(model.id).id == model.id
    for name in ("gpt-image-1", "photos/2", "photos/latest", "nothing/1"):
        with pytest.raises(openai.NotFoundError, match=f"no model '{name}'") as missing:
            package.models.retrieve(name)
        assert missing.value.code == "model_not_found"


def test_it_retrieves_a_version_by_the_name_that_its_edits_accept(package: openai.OpenAI) -> None:
    assert package.models.retrieve("photos/1").id == "photos/1"


def test_it_tells_that_a_path_does_not_exist(server: Running, package: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no such path"):
        package.chat.completions.create(model="photos", messages=[])
    with (
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as without_v1,
        pytest.raises(openai.NotFoundError, match="no such path"),
    ):
        without_v1.images.generate(prompt="")


def test_responses_and_events_are_valid_by_its_schema(package: openai.OpenAI, photo: bytes, alpha_mask: bytes) -> None:
    """The package itself accepts anything, but clients in other languages check fields and their values."""
    found = package.images.edit(image=photo, mask=alpha_mask, prompt="", output_format="webp")
    ImagesResponse.model_validate_json(found.model_dump_json(exclude_unset=True))
    (edited,) = package.images.edit(image=photo, mask=alpha_mask, prompt="", stream=True)
    ImageEditCompletedEvent.model_validate_json(edited.model_dump_json(exclude_unset=True))
    (made,) = package.images.generate(model="faces", prompt="", stream=True)
    ImageGenCompletedEvent.model_validate_json(made.model_dump_json(exclude_unset=True))
    Model.model_validate_json(package.models.retrieve("photos").model_dump_json(exclude_unset=True))


def test_it_raises_its_own_errors(package: openai.OpenAI, photo: bytes, alpha_mask: bytes) -> None:
    with pytest.raises(openai.NotFoundError, match="no model") as missing:
        package.images.edit(image=photo, mask=alpha_mask, prompt="", model="gpt-image-1")
    assert missing.value.code == "model_not_found"
