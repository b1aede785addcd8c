"""OpenAI's npm package on a page of another origin, which `--cors-origins` allows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from os import PathLike
from pathlib import Path

import pytest
from conftest import PICTURES, ROOT, origin_of
from playwright.sync_api import Browser, Page

from tests.serving.served_process import ServedProcess

MODULES = Path(__file__).parent / "node_modules"
EDIT = """async ([base, photo]) => {
    const {default: OpenAI} = await import("/openai/index.mjs");
    const client = new OpenAI({
        baseURL: base, apiKey: "none", dangerouslyAllowBrowser: true, maxRetries: 0,
        timeout: 60000, organization: "org", project: "project",
    });
    const image = await (await fetch(photo)).blob();
    const white = document.createElement("canvas");
    const bitmap = await createImageBitmap(image);
    [white.width, white.height] = [bitmap.width, bitmap.height];
    const brush = white.getContext("2d");
    brush.fillStyle = "black";
    brush.fillRect(0, 0, white.width, white.height);
    brush.clearRect(40, 40, 30, 30);
    const mask = await new Promise((done) => white.toBlob(done));
    try {
        const reply = await client.images.edit({
            image: new File([image], "photo.jpg"), mask: new File([mask], "mask.png"), prompt: "",
        });
        return [reply.data[0].b64_json.slice(0, 8), (await client.models.list()).data.length];
    } catch (error) {
        return [String(error), 0];
    }
}"""


class _Files(SimpleHTTPRequestHandler):
    def guess_type(self, path: str | PathLike[str]) -> str:
        return "text/javascript" if str(path).endswith(".mjs") else super().guess_type(path)

    def translate_path(self, path: str) -> str:
        return str(PICTURES / path.rpartition("/")[2]) if path.endswith(".jpg") else super().translate_path(path)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Discard the server's log."""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """URL of the origin whose page uses the package."""
    with origin_of(partial(_Files, directory=str(MODULES))) as found:
        yield found


@pytest.fixture
def page(browser: Browser, origin: str) -> Iterator[Page]:
    context = browser.new_context()
    opened = context.new_page()
    opened.goto(f"{origin}/openai/package.json")
    yield opened
    context.close()


@pytest.mark.parametrize("allowed", [True, False])
def test_openais_package_edits_from_a_page_whose_origin_is_allowed(
    allowed: bool, page: Page, origin: str, models_dir: Path, tmp_path: Path
) -> None:
    named = origin if allowed else "http://other.example"
    command = [ROOT / ".venv/bin/retouch", "serve"]
    with ServedProcess(tmp_path, command=command, models_dir=models_dir, cors_origins=named) as served:
        head, models = page.evaluate(EDIT, [f"{served.url}/v1", "/dress.jpg"])
        served.terminate()
    assert (head == "iVBORw0K", models > 0) == (allowed, allowed), head  # the first bytes of a PNG
