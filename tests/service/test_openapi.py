"""The server against its own OpenAPI document, with requests that schemathesis makes up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.negotiation import asked_priority

Serve = Callable[..., Any]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_document_names_every_call_and_error_of_the_contract(serve: Serve) -> None:
    with serve().client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/inpaint",
        "/v1/translate",
        "/v1/generate",
        "/v1/jobs/{job_id}",
        "/v1/results/{result_id}",
        "/v1/models",
        "/livez",
        "/readyz",
        "/metrics",
    }
    inpaint = paths["/v1/inpaint"]["post"]
    form = inpaint["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["image", "mask"]
    assert form["properties"]["mask_mode"]["enum"] == ["white", "black", "alpha"]
    statuses = "200 202 400 401 403 404 408 409 413 415 422 429 500 503 504"
    assert set(inpaint["responses"]) == set(statuses.split())
    content = inpaint["responses"]["200"]["content"]
    assert set(content) == {"image/png", "image/jpeg", "image/webp", "application/json", "multipart/mixed"}
    asked = {parameter["name"]: parameter["schema"] for parameter in inpaint["parameters"]}
    assert set(asked) == {"X-Request-Timeout-Ms", "X-Request-ID", "X-Priority", "Prefer", "Idempotency-Key"}
    for level in asked["X-Priority"]["enum"]:
        assert asked_priority(level) in range(10)
    assert not paths["/v1/generate"]["post"]["requestBody"]["required"]
    translate = paths["/v1/translate"]["post"]
    form = translate["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert (form["required"], "instance" in form["properties"]) == (["image"], True)
    assert "multipart/mixed" not in translate["responses"]["200"]["content"]


@pytest.mark.slow
def test_no_made_up_request_finds_a_500_or_an_undocumented_answer(serve: Serve, tmp_path: Path) -> None:
    """The command line, because schemathesis' pytest plugin does not know this pytest yet."""
    allowed = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "503", "504"]\n'  # documented
    (tmp_path / "schemathesis.toml").write_text(allowed)
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{serve().url}/openapi.json"]
    options = ["--checks", CHECKS, "--max-examples", "50", "--seed", "7", "--phases", "examples,coverage,fuzzing"]
    uncovered = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_CONFIG"}
    found = subprocess.run(
        [*command, *options, "--no-color"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
        env=uncovered,  # nothing of ours runs in there
    )
    assert found.returncode == 0, found.stdout[-6000:]
    assert "Tested: 10" in found.stdout, found.stdout[-2000:]
