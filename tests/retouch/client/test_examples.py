"""The examples of docs/client.md run as printed, except for the server's address."""

from __future__ import annotations

import io
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.retouch.conftest import TEST_DATA
from tests.serving.local_server import Running

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
PRINTED = (
    r"photos/1 [\d.]+ [0-9a-f]{32}\n",
    r"\['diverse/1', 'facades/1', 'faces/1', 'photos/1'\]\n",
    r"\[0, 1, 2, 3\]\n",
    r"/v1/results/[0-9a-f]{32}\n",
    r"photos/1 256 341 image/png\n",
    r"True\n",
    r"invalid_option False\n",
)


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)), ids=range(len(PRINTED)))
def test_each_example_prints_what_the_documentation_says(
    example: str, printed: str, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(TEST_DATA / "dress.jpg", tmp_path / "photo.jpg")
    shutil.copy(TEST_DATA / "dress_mask.png", tmp_path / "mask.png")
    monkeypatch.chdir(tmp_path)
    assert "http://127.0.0.1:8000" in example
    out = io.StringIO()  # not standard output, where the server logs
    code = example.replace("http://127.0.0.1:8000", server.url)
    exec(code, {"print": partial(print, file=out)})  # trusted: the example is from our own documentation
    assert re.fullmatch(printed, out.getvalue())


def test_the_examples_name_only_models_that_come_with_retouch() -> None:
    named = {name for example in EXAMPLES for name in re.findall(r'model="([^"]+)"', example)}
    assert named
    assert named <= {folder.name for folder in (PAGE.parents[1] / "models").iterdir()}
