"""The server against its own OpenAPI document, with requests that schemathesis makes up."""

from __future__ import annotations

import os
import re
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


@pytest.mark.parametrize(("count", "reply"), [(1, "ImageReply"), (2, "ImagesReply")])
def test_what_is_answered_as_json_is_what_the_document_says(
    serve: Serve, models_dir: Path, add_model: Callable[..., Path], count: int, reply: str
) -> None:
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    size = {"kind": "fixed", "height": 64, "width": 64, "fit": "resize"}
    add_model(models_dir, "faces", "generate", inputs=[latent], size=size)
    with serve().client() as client:
        document = client.get("/openapi.json").json()
        fields = {"count": (None, str(count)), "model": (None, "faces")}
        answer = client.post("/v1/generate", files=fields, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    schema = document["paths"]["/v1/generate"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    _validator(document, schema).validate(answer.json())
    _validator(document, {"$ref": f"#/components/schemas/{reply}"}).validate(answer.json())
    assert not _validator(document, schema).is_valid({})


def test_errors_are_documented_as_they_are_sent(serve: Serve) -> None:
    with serve().client() as client:
        document = client.get("/openapi.json").json()
        answer = client.get("/v1/jobs/nothing")
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert answer.headers["Content-Type"] in problem
    _validator(document, problem["application/problem+json"]["schema"]).validate(answer.json())
    calls = [call for path in document["paths"].values() for call in path.values()]
    errors = [answer for call in calls for status, answer in call["responses"].items() if status >= "4"]
    health = document["paths"]["/readyz"]["get"]["responses"]["503"]
    assert {str(error["content"]) for error in errors if error != health} == {str(problem)}
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_headers_that_say_where_and_when_to_ask_again_are_documented(serve: Serve) -> None:
    with serve().client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    inpaint = paths["/v1/inpaint"]["post"]["responses"]
    assert {"Location", "Preference-Applied"} <= set(inpaint["202"]["headers"])
    for call in (paths["/v1/inpaint"]["post"], paths["/v1/jobs/{job_id}"]["get"], paths["/v1/jobs/{job_id}"]["delete"]):
        for status in ("429", "503"):
            assert "Retry-After" in call["responses"][status]["headers"]
    assert "Retry-After" in inpaint["504"]["headers"]


def test_every_reference_of_the_document_leads_somewhere(serve: Serve) -> None:
    with serve().client() as client:
        document = client.get("/openapi.json").json()
    named = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert named == set(document["components"]["schemas"])


def _validator(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    """Of JSON Schema 2020-12, which OpenAPI 3.1 is made of; the document's own parts can be named."""
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


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
