"""The openai package of Python and of npm, and the AI SDK."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

HERE = Path(__file__).parent
PACKAGES = HERE.parents[1] / ".venv-compat/npm"
"""Folder of npm's packages; a script must be in it to find them."""


@pytest.fixture
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def picture(reply: Any) -> bytes:
    return base64.b64decode(reply.data[0].b64_json)


def test_python_edits(client: openai.OpenAI, photo: bytes, alpha_mask: bytes, native: bytes) -> None:
    reply = client.images.edit(image=photo, mask=alpha_mask, prompt="", model="photos", size="1024x1024")
    assert picture(reply) == native


def test_python_edits_a_list_of_one_with_a_white_mask(
    client: openai.OpenAI, photo: bytes, mask: bytes, native: bytes
) -> None:
    body = {"mask_mode": "white", "seed": 7}
    assert picture(client.images.edit(image=[photo], mask=mask, prompt="", extra_body=body)) == native


def test_python_streams(client: openai.OpenAI, photo: bytes, alpha_mask: bytes, native: bytes) -> None:
    events = list(client.images.edit(image=photo, mask=alpha_mask, prompt="", stream=True, partial_images=1))
    assert [event.type for event in events] == ["image_edit.completed"]
    assert base64.b64decode(events[0].b64_json) == native


def test_python_lists_the_models(client: openai.OpenAI, shipped: list[str]) -> None:
    assert [model.id for model in client.models.list()] == shipped


def test_python_draws(client: openai.OpenAI, url: str) -> None:
    drawn = client.images.generate(prompt="a house", extra_body={"seed": 7})
    assert picture(drawn) == httpx.post(f"{url}/v1/generate", files={"seed": (None, "7")}, timeout=60).content


def test_python_raises_its_own_errors(client: openai.OpenAI, photo: bytes, mask: bytes, alpha_mask: bytes) -> None:
    with pytest.raises(openai.NotFoundError, match="no model") as missing:
        client.images.edit(image=photo, mask=alpha_mask, prompt="", model="gpt-image-1")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.UnprocessableEntityError, match="mask_mode"):
        client.images.edit(image=photo, mask=mask, prompt="")
    with pytest.raises(openai.APIStatusError, match="photos") as wrong:
        client.images.generate(prompt="a dog", model="photos")
    assert wrong.value.status_code in (404, 422)


def test_python_raises_its_own_errors_asynchronously(url: str, photo: bytes) -> None:
    async def edit() -> None:
        patient: dict[str, Any] = {"max_retries": 0, "timeout": 60}  # by default 5 s to connect: too short if busy
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", **patient) as client:
            await client.images.edit(image=photo, prompt="")

    with pytest.raises(openai.UnprocessableEntityError, match="alpha"):
        asyncio.run(edit())


@pytest.fixture
def paths(tmp_path: Path, photo: bytes, alpha_mask: bytes) -> list[Path]:
    """Paths of the picture, of its mask, and for the fill."""
    found = [tmp_path / name for name in ("photo.png", "mask.png", "filled.png")]
    found[0].write_bytes(photo)
    found[1].write_bytes(alpha_mask)
    return found


@pytest.mark.parametrize("script", ["edit.mjs", "edit_ai_sdk.mjs"])
def test_packages_of_npm_edit(url: str, paths: list[Path], native: bytes, script: str) -> None:
    command = ["node", shutil.copy(HERE / script, PACKAGES), f"{url}/v1", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert paths[2].read_bytes() == native
