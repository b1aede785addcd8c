"""The examples of docs/api.md work as printed, except for the server's address."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.retouch.conftest import TEST_DATA
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until

EXAMPLES = (Path(__file__).parents[4] / "docs/api.md").read_text("utf-8").partition("## Examples")[2]
SHELL = [line.partition("  #")[0] for line in re.findall(r"^curl .*$", EXAMPLES.partition("## Form fields")[0], re.M)]
SCRIPT = re.findall(r"^```js\n(.*?)^```", EXAMPLES, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the examples send."""
    shutil.copy(TEST_DATA / "dress.jpg", tmp_path / "photo.jpg")
    shutil.copy(TEST_DATA / "dress_mask.png", tmp_path / "mask.png")
    return tmp_path


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_each_call_of_curl_succeeds_and_a_job_leads_to_its_picture(server: Running, folder: Path) -> None:
    ids: dict[str, str] = {}

    def send(line: str) -> str:
        command = line.replace("http://127.0.0.1:8000", server.url).replace("curl", "curl --silent --fail", 1)
        for kind, found in ids.items():
            command = command.replace(f"/v1/{kind}/ID", f"/v1/{kind}/{found}")
        said = subprocess.run(command, shell=True, check=True, capture_output=True, cwd=folder).stdout
        return said.decode("utf-8", "replace")

    def note_ids(line: str) -> bool:
        """Send a line and keep the ids of its reply; returns whether a job in it is done."""
        said = send(line)
        ids.update(re.findall(r"/v1/(jobs|results)/([0-9a-f]{32})", said))
        return "/v1/jobs/ID" not in line or "succeeded" in said

    for line in SHELL:
        wait_until(lambda line=line: note_ids(line))
    assert (len(SHELL), set(ids)) == (7, {"jobs", "results"})
    assert (folder / "filled.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "filled.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_saves_the_picture_and_prints_its_address(server: Running, folder: Path) -> None:
    (folder / "fill.mjs").write_text(SCRIPT[0].replace("http://127.0.0.1:8000", server.url))
    done = subprocess.run(["node", "fill.mjs"], check=True, capture_output=True, text=True, cwd=folder)
    assert re.fullmatch(r"/v1/results/[0-9a-f]{32}\n", done.stdout)
    assert (folder / "filled.png").read_bytes().startswith(b"\x89PNG")
