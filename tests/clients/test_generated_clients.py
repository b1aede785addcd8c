"""Clients generated from /openapi.json by openapi-python-client and openapi-typescript get pictures as bytes."""

from __future__ import annotations

import importlib
import io
import json
import shutil
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
    """The package that openapi-python-client generates."""
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


def call(generated: ModuleType, name: str) -> Any:
    """Return the module of a call in the generated package; `name` is TAG.OPERATION."""
    return importlib.import_module(f"{generated.__name__}.api.{name}")


def test_the_python_client_makes_all_other_calls(retouch_client: ModuleType, url: str) -> None:
    models, file = (importlib.import_module(f"{retouch_client.__name__}.{name}") for name in ("models", "types"))
    client = retouch_client.Client(base_url=url)
    labels = file.File(io.BytesIO((PICTURES / "facade_labels.png").read_bytes()), "labels.png", "image/png")
    translated = call(retouch_client, "pictures.translate").sync_detailed(
        client=client, body=models.TranslateBody(image=labels, save=False)
    )
    assert translated.parsed.payload.read().startswith(PNG)
    generated = call(retouch_client, "pictures.generate").sync_detailed(
        client=client, body=models.GenerateFilesBody(model="faces", seed=7, format_=models.GenerateFilesBodyFormat.PNG)
    )
    assert (generated.status_code, generated.headers["X-Seed"]) == (200, "7")
    found = call(retouch_client, "models.list_models").sync(client=client).models
    assert {"facades", "faces", "photos"} <= {model.name for model in found}
    missing = call(retouch_client, "jobs.cancel_job").sync_detailed("0" * 32, client=client)
    assert (missing.status_code, missing.parsed.code.value) == (404, "not_found")
    assert call(retouch_client, "operations.readyz").sync(client=client).status.value == "ok"


@pytest.fixture(scope="module")
def typescript(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this folder's TypeScript programs, compiled against the types that openapi-typescript generates."""
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "node_modules").symlink_to(NODE_MODULES)
    (folder / "package.json").write_text('{"type": "module"}')
    for program in HERE.glob("*.ts"):
        shutil.copy(program, folder)
    strict = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--lib", "es2022,dom"]
    run(folder, NODE_MODULES / ".bin/openapi-typescript", "openapi.json", "--output", "schema.d.ts")
    run(folder, NODE_MODULES / ".bin/tsc", *strict, "--skipLibCheck", "post.ts", "calls.ts")
    return folder


def run(folder: Path, *command: str | Path) -> str:
    """Run a command, which must succeed, and return its standard output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_typescript_client_gets_bytes(typescript: Path, url: str) -> None:
    printed = run(typescript, "node", "post.js", url, PICTURES / "dress.jpg", PICTURES / "dress_mask.png", "filled.png")
    filled = (typescript / "filled.png").read_bytes()
    assert filled.startswith(PNG)
    assert httpx.get(f"{url}{json.loads(printed)['location']}").content == filled


def test_the_typescript_client_makes_all_other_calls(typescript: Path, url: str, models_dir: Path) -> None:
    pictures = [PICTURES / name for name in ("dress.jpg", "dress_mask.png", "facade_labels.png")]
    printed = json.loads(run(typescript, "node", "calls.js", url, *pictures))
    manifests = [json.loads(path.read_text("utf-8")) for path in models_dir.glob("*/*/manifest.json")]
    assert sorted(printed.pop("models")) == sorted(f"{one['name']}: /v1/{one['task']}" for one in manifests)
    submitted, *later = printed.pop("job")
    assert (submitted in {"queued", "running"}, later) == (True, ["succeeded", "succeeded"])
    assert printed == {
        "translated": "WEBP",
        "generated": [True, True, True],
        "seed": 7,
        "stored": "PNG",
        "sidecar": "photos/5",
        "missing": "not_found",
        "ready": "ok",
    }
