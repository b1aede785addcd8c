"""Clients that are generated from /openapi.json by openapi-python-client and openapi-typescript get bytes."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from conftest import PICTURES

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def retouch_client(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package that openapi-python-client makes."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(document))
    tool = Path(sys.executable).with_name("openapi-python-client")
    options = ["--path", "openapi.json", "--config", HERE / "openapi-python-client.yaml", "--fail-on-warning"]
    made = subprocess.run(
        [tool, "generate", *options, "--meta", "none", "--output-path", "retouch_client"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("retouch_client")
    finally:
        sys.path.remove(str(folder))


def body(generated: ModuleType, **fields: Any) -> Any:
    of = {name: importlib.import_module(f"{generated.__name__}.{name}") for name in ("models", "types")}
    image, mask = (io.BytesIO((PICTURES / name).read_bytes()) for name in ("dress.jpg", "dress_mask.png"))
    file = of["types"].File
    return of["models"].InpaintBody(
        image=file(image, "dress.jpg", "image/jpeg"), mask=file(mask, "mask.png", "image/png"), **fields
    )


def inpaint(generated: ModuleType, url: str, **arguments: Any) -> Any:
    call = importlib.import_module(f"{generated.__name__}.api.pictures.inpaint")
    return call.sync_detailed(client=generated.Client(base_url=url), **arguments)


def test_the_python_client_gets_bytes(retouch_client: ModuleType, url: str) -> None:
    answer = inpaint(retouch_client, url, body=body(retouch_client))
    assert answer.status_code == 200
    assert answer.parsed.payload.read().startswith(PNG)
    assert answer.headers["Location"].startswith("/v1/results/")


def test_the_python_client_gets_a_problem_as_an_object(retouch_client: ModuleType, url: str) -> None:
    answer = inpaint(retouch_client, url, body=body(retouch_client, model="nobodys"))
    assert (answer.status_code, answer.parsed.code.value) == (404, "model_not_found")


def test_the_python_client_polls_a_job_and_gets_its_result(retouch_client: ModuleType, url: str) -> None:
    models = importlib.import_module(f"{retouch_client.__name__}.models")
    accepted = inpaint(retouch_client, url, body=body(retouch_client), prefer=models.InpaintPrefer.RESPOND_ASYNC)
    assert accepted.status_code == 202
    jobs, results = (
        importlib.import_module(f"{retouch_client.__name__}.api.{name}")
        for name in ("jobs.get_job", "results.get_result")
    )
    client, job = retouch_client.Client(base_url=url), accepted.parsed
    while job.status in ("queued", "running"):
        job = jobs.sync(job.id, client=client)
    assert job.status == "succeeded"
    found = results.sync_detailed(job.result_url.rpartition("/")[2], client=client)
    assert found.parsed.payload.read().startswith(PNG)


def test_the_typescript_client_compiles_and_gets_bytes(document: dict[str, Any], url: str, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "post.ts").write_text((HERE / "post.ts").read_text("utf-8"))
    tools = NODE_MODULES / ".bin"
    strict = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--lib", "es2022,dom"]
    for command in (
        [tools / "openapi-typescript", "openapi.json", "--output", "schema.d.ts"],
        [tools / "tsc", *strict, "--skipLibCheck", "post.ts"],
        ["node", "post.js", url, PICTURES / "dress.jpg", PICTURES / "dress_mask.png", "filled.png"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "filled.png").read_bytes().startswith(PNG)
    location = json.loads(done.stdout)["location"]
    assert httpx.get(f"{url}{location}").content == (tmp_path / "filled.png").read_bytes()
