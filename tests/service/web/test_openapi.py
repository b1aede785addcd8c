"""The server against its own OpenAPI document, with requests that schemathesis generates."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.otlp_receiver import OtlpReceiver
from service.core.errors import codes_by_status, problem_kinds
from service.core.schemas import OPTIONS
from service.intake.request_metadata import parse_priority
from tests.serving.local_server import Running

Serve = Callable[..., Any]
ROOT = Path(__file__).parents[3]
OF_EVERY_REPLY = {
    *("date", "content-type", "content-length", "connection"),
    *("content-security-policy", "referrer-policy", "x-content-type-options", "x-frame-options"),  # docs/security.md
}
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_document_names_every_call_and_error_of_the_contract(serve: Serve) -> None:
    with serve().client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {
        "/v1/inpaint",
        "/v1/translate",
        "/v1/generate",
        "/v1/jobs/{job_id}",
        "/v1/results",
        "/v1/results/{result_id}",
        "/v1/results/{result_id}/thumbnail",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/models/{name}/{version}",
        "/livez",
        "/readyz",
        "/metrics",
    }
    inpaint = paths["/v1/inpaint"]["post"]
    form = inpaint["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["image", "mask"]
    assert form["properties"]["mask_mode"]["enum"] == ["white", "black", "alpha"]
    statuses = "200 202 400 401 403 404 405 408 409 410 413 415 421 422 429 500 503 504"
    assert set(inpaint["responses"]) == set(statuses.split())
    content = inpaint["responses"]["200"]["content"]
    assert set(content) == {"image/png", "image/jpeg", "image/webp", "application/json", "multipart/mixed"}
    asked = {parameter["name"]: parameter["schema"] for parameter in inpaint["parameters"]}
    headers = {"X-Request-Timeout-Ms", "X-Request-ID", "X-Priority", "Prefer", "Idempotency-Key", "traceparent"}
    assert set(asked) == headers
    for level in asked["X-Priority"]["enum"]:
        assert parse_priority(level) in range(10)
    generate = paths["/v1/generate"]["post"]["requestBody"]
    assert (generate["required"], len(generate["content"]), len(inpaint["requestBody"]["content"])) == (False, 2, 1)
    translate = paths["/v1/translate"]["post"]
    form = translate["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert (form["required"], "instance" in form["properties"]) == (["image"], True)
    assert {"samples", "seed"} <= form["properties"].keys()
    assert set(translate["responses"]["200"]["content"]) == set(content)


@pytest.mark.parametrize(("count", "reply"), [(1, "ImageReply"), (2, "ImagesReply")])
def test_what_is_answered_as_json_is_what_the_document_says(
    serve: Serve, models_dir: Path, add_model: Callable[..., Path], count: int, reply: str
) -> None:
    size = {"kind": "fixed", "height": 64, "width": 64, "fit": "resize"}
    add_model(models_dir, "faces", "generate", size=size)
    with serve().client() as client:
        document = client.get("/openapi.json").json()
        fields = {"count": (None, str(count)), "model": (None, "faces")}
        answer = client.post("/v1/generate", files=fields, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    schema = document["paths"]["/v1/generate"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    _validator(document, schema).validate(answer.json())
    _validator(document, {"$ref": f"#/components/schemas/{reply}"}).validate(answer.json())
    assert not _validator(document, schema).is_valid({})


def test_errors_are_documented_as_they_are_sent(server: Running) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
        answer = client.get("/v1/jobs/nothing")
    problem = {"$ref": "#/components/schemas/Problem"}
    assert answer.headers["Content-Type"] == "application/problem+json"
    _validator(document, problem).validate(answer.json())
    calls = [(path, call) for path, calls in document["paths"].items() for call in calls.values()]
    errors = [(path, status, answer) for path, call in calls for status, answer in call["responses"].items()]
    for path, status, error in errors:
        if status >= "4" and (path, status) != ("/readyz", "503"):
            ((media_type, content),) = error["content"].items()
            assert (media_type, content["schema"]) == ("application/problem+json", problem)
            _validator(document, problem).validate(content["example"])
            assert (content["example"]["instance"], content["example"]["status"]) == (path, int(status))
            assert f"`{content['example']['code']}`" in error["description"], (path, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_every_call_has_a_name_that_people_can_read_and_a_tag_that_is_described(server: Running) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
    calls = [call for path in document["paths"].values() for call in path.values()]
    names = [call["operationId"] for call in calls]
    assert set(names) >= {
        "inpaint",
        "translate",
        "generate",
        "get_job",
        "cancel_job",
        "get_result",
        "list_models",
        "delete_result",
    }
    assert len(set(names)) == len(names) == 15
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)?", name) for name in names), names
    described = [tag["name"] for tag in document["tags"] if tag["description"]]
    assert [call["operationId"] for call in calls if not re.fullmatch(r"[A-Z][^.]+", call["summary"])] == []
    assert [call["tags"] for call in calls if len(call["tags"]) != 1 or call["tags"][0] not in described] == []
    assert {call["tags"][0] for call in calls} == set(described)


def test_defaults_and_examples_are_what_the_call_takes(
    serve: Serve, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    add_model(models_dir, "faces", "generate", inputs=[{"name": "latent", "dtype": "float32", "shape": ["batch", 8]}])
    with serve().client() as client:
        document = client.get("/openapi.json").json()
    bodies = {task: document["paths"][f"/v1/{task}"]["post"]["requestBody"] for task in OPTIONS}
    for task, named in {"inpaint": "photos", "translate": "facades", "generate": "faces"}.items():
        schema = bodies[task]["content"]["multipart/form-data"]["schema"]
        assert schema["properties"]["model"]["examples"] == [named]
        for name, field in schema["properties"].items():
            if field.get("format") == "binary":
                continue
            shown = [*field.get("examples", []), *([field["default"]] if "default" in field else [])]
            assert shown, f"{task}: {name}: a page made from the document would invent a value"
            for value in shown:
                _validator(document, field).validate(value)
                if value != "":
                    OPTIONS[task].model_validate({name: str(value)})
    parameters = [
        p for path in document["paths"].values() for call in path.values() for p in call.get("parameters", [])
    ]
    for parameter in parameters:
        assert not parameter.get("required") or parameter["schema"]["example"], parameter["name"]


def test_the_example_for_a_model_is_one_that_is_served(
    serve: Serve, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    add_model(models_dir, "streets", "inpaint")
    with serve(inpaint_model="surely_not").client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    form = paths["/v1/inpaint"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["properties"]["model"]["examples"] == ["photos"]
    form = paths["/v1/generate"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["properties"]["model"]["examples"] == ["housefronts"]  # none exists: the default


def raised_codes() -> set[tuple[str, str]]:
    """Return class and code of every error that the sources raise with an explicit code."""
    found = set()
    for path in (ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            codes = [word.value for word in getattr(node, "keywords", []) if word.arg == "code"]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and codes:
                found.add((node.func.id, ast.unparse(codes[0]).strip("'")))
    return found


def test_every_code_that_is_raised_is_enumerated_with_its_status_and_documented(serve: Serve) -> None:
    with serve(public_url="http://127.0.0.1").client() as client:
        document = client.get("/openapi.json").json()
    kinds = {kind.__name__: kind for kind in problem_kinds()}
    made = {("InvalidOption", "f'{part}_not_taken"), ("kind", "failure.code or None")}  # computed from known codes
    for kind, code in sorted(raised_codes() - made):
        assert code in (kinds[kind].default_code, *kinds[kind].further_codes), (kind, code)
    codes = {code for codes in codes_by_status().values() for code in codes}
    assert set(document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]) == codes
    calls = [call for path in document["paths"].values() for call in path.values()]
    answers = [answer["description"] for call in calls for answer in call["responses"].values()]
    told = re.findall(r"`([a-z_]+)`", "".join(answer.partition("`code`: ")[2] for answer in answers))
    assert set(told) == codes
    table = (ROOT / "docs/api.md").read_text("utf-8").partition("## Errors")[2].partition("## Jobs")
    assert codes - set(re.findall(r"`([a-z_]+)`", "".join(table))) == set()


@pytest.mark.parametrize("path", ["/v1/inpaint", "/v1/models", "/v1/jobs/{job_id}", "/livez"])
def test_a_wrong_method_is_answered_as_documented(server: Running, path: str) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
        answer = client.request("PATCH", path.format(job_id="0"))
    assert answer.status_code == 405
    for call in document["paths"][path].values():
        assert set(call["responses"]["405"]["headers"]) >= {"Allow", "X-Request-ID"}
    assert answer.headers["Allow"]
    _validator(document, {"$ref": "#/components/schemas/Problem"}).validate(answer.json())


def test_every_header_of_a_reply_is_documented(collector: OtlpReceiver, serve: Serve, files: dict[str, Any]) -> None:
    options = {"cache_entries": 9, "otlp_endpoint": collector.url, "trace_ratio": 1.0}
    keyed = {"Idempotency-Key": "once", "X-Request-ID": "mine"}
    with serve(**options).client() as client:
        document = client.get("/openapi.json").json()
        pictures = [client.post("/v1/inpaint", files=files, headers=keyed) for _ in range(2)]
        location = pictures[0].headers["Location"]
        job = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        known = {"If-None-Match": client.get(location).headers["ETag"]}
        answers = {
            "/v1/inpaint": [*pictures, job, client.post("/v1/inpaint", files={}), client.post("/v1/inpaint")],
            "/v1/results": [client.get("/v1/results"), client.get("/v1/results?limit=0")],
            "/v1/results/{result_id}": [
                client.get(location),
                client.get(location, headers=known),
                client.get(location, headers={"Range": "bytes=0-9"}),
                client.get(location, headers={"Range": "bytes=99999999-"}),
            ],
            "/v1/results/{result_id}/thumbnail": [client.get(f"{location}/thumbnail")],
            "/v1/jobs/{job_id}": [client.get(job.headers["Location"]), client.get("/v1/jobs/0")],
            "/v1/models": [client.get("/v1/models")],
            "/v1/models/{name}": [client.get("/v1/models/photos"), client.get("/v1/models/nothing")],
            "/v1/models/{name}/{version}": [client.get("/v1/models/photos/1"), client.get("/v1/models/photos/9")],
            "/metrics": [client.get("/metrics")],
            "/livez": [client.get("/livez")],
        }
    assert pictures[1].headers["Idempotency-Replayed"] == "true"
    assert "traceparent" in pictures[0].headers
    for path, replies in answers.items():
        call = next(iter(document["paths"][path].values()))
        for reply in replies:
            declared = {name.lower() for name in call["responses"][str(reply.status_code)].get("headers", {})}
            assert set(reply.headers) - declared - OF_EVERY_REPLY == set(), f"{path}: {reply.status_code}"


def test_headers_that_say_where_and_when_to_ask_again_are_documented(server: Running) -> None:
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    inpaint = paths["/v1/inpaint"]["post"]["responses"]
    assert {"Location", "Preference-Applied"} <= set(inpaint["202"]["headers"])
    for call in (paths["/v1/inpaint"]["post"], paths["/v1/jobs/{job_id}"]["get"], paths["/v1/jobs/{job_id}"]["delete"]):
        for status in ("429", "503"):
            assert "Retry-After" in call["responses"][status]["headers"]
    assert "Retry-After" in inpaint["504"]["headers"]


def test_every_reference_of_the_document_leads_somewhere(server: Running) -> None:
    with server.client() as client:
        document = client.get("/openapi.json").json()
    named = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert named == set(document["components"]["schemas"])


def _validator(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    """Return a validator for JSON Schema 2020-12, which OpenAPI 3.1 uses, with the document's components for `$ref`."""
    jsonschema = pytest.importorskip("jsonschema")
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


@pytest.mark.slow
def test_no_made_up_request_finds_a_500_or_an_undocumented_answer(serve: Serve, tmp_path: Path) -> None:
    """This runs the command line, as schemathesis' pytest plugin does not support this version of pytest yet."""
    allowed = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "503", "504"]\n'  # documented
    (tmp_path / "schemathesis.toml").write_text(allowed)
    command: list[str | Path] = [Path(sys.executable).with_name("schemathesis"), "run", f"{serve().url}/openapi.json"]
    options = ["--checks", CHECKS, "--max-examples", "50", "--seed", "7", "--phases", "examples,coverage,fuzzing"]
    found = subprocess.run(
        [*command, *options, "--no-color"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stdout[-6000:]
    assert "Tested: 15" in found.stdout, found.stdout[-2000:]
