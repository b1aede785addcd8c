"""Promises about the repository itself."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LONGEST

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("retouch", "service", "engines", "export", "training")
FOLDERS = {*PACKAGES, "benchmarks", "docker", "docs", "models", "requirements", "tests"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_dependency_ships_a_package_of_our_name(package: str) -> None:
    owners = importlib.metadata.packages_distributions().get(package, [])
    assert set(owners) <= {"retouch"}, owners


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("docker/cpu.Dockerfile", r"ARG VERSION=(\S+)"),
        ("docker/gpu.Dockerfile", r"ARG VERSION=(\S+)"),
        ("docker/kubernetes/overlays/cpu/kustomization.yaml", r'newTag: "(.+)"'),
        ("docker/kubernetes/overlays/gpu/kustomization.yaml", r'newTag: "(.+)"'),
        ("CHANGELOG.md", r"\n## \[(\d+\.\d+\.\d+)\]"),
    ],
)
def test_every_place_that_names_the_version_names_the_same(path: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / path).read_text("utf-8"))
    assert found is not None
    assert found[1] == _project()["version"]


def test_the_licence_is_named_and_its_text_is_shipped() -> None:
    assert (_project()["license"], _project()["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()


def _files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_a_file_has_at_most_300_lines() -> None:
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in _files(*PACKAGES, "benchmarks", "tests")}
    assert {str(path): count for path, count in lines.items() if count > 300} == {}


def test_the_name_of_a_file_says_what_is_in_it() -> None:
    """A file with a standard library module's name could be imported in its place."""
    bad = {"utils", "helpers", "common", "misc", "items", *sys.stdlib_module_names}
    assert [str(path) for path in _files(*PACKAGES, "benchmarks", "tests") if path.stem in bad] == []


def test_a_docstring_begins_with_a_noun_or_a_verb() -> None:
    begins = re.compile(r'^\s*"""(Of|What|Whose|Which)\b', re.MULTILINE)
    assert [str(path) for path in _files(*PACKAGES, "benchmarks") if begins.search(path.read_text("utf-8"))] == []


def test_a_folder_has_at_most_14_files() -> None:
    files = [path for path in _files(*PACKAGES, "benchmarks", "tests") if path.stem != "__init__"]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    assert [found for found in counts.items() if found[1] > 14] == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git knows which files are tracked")
def test_what_a_command_wrote_into_the_checkout_is_not_tracked() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {path.partition("/")[0] for path in listed.splitlines() if "/" in path}
    assert tracked == {*FOLDERS, ".ci"}


def test_every_room_has_a_contract_that_a_new_file_breaks() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    guarded = {
        container
        for contract in linter["contracts"]
        if contract["type"] == "layers" and contract.get("exhaustive")
        for container in contract["containers"]
    }
    folders = {path.parent for path in _files(*PACKAGES) if path.stem != "__init__"}
    rooms = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(linter["root_packages"]) == set(PACKAGES)
    assert sorted(rooms - guarded) == []


def test_every_decision_has_a_number_of_its_own() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert len(set(numbers)) == len(numbers), [path.name for path in records]
    assert [path.read_text("utf-8").partition(".")[0] for path in records] == [f"# {number}" for number in numbers]


def test_a_class_that_several_tests_need_is_written_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any(isinstance(part, ast.FunctionDef) for part in node.body):
                name, node.name = node.name, ""
                places[ast.dump(node)].append(f"{path.relative_to(ROOT)}: {name}")
    assert [written for written in places.values() if len(written) > 1] == []


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(result.stdout.split())


def test_serving_imports_neither_torch_nor_onnx() -> None:
    assert not loaded_by("import service.web.server") & {"torch", "onnx", "export"}


def test_the_command_starts_without_the_heavy_libraries() -> None:
    assert not loaded_by("import retouch.command_line") & {"torch", "numpy", "fastapi", "openvino", "cv2", "matplotlib"}


def test_slow_tests_are_marked_where_make_looks_for_them() -> None:
    """`make test-slow` collects the files that contain the mark literally; others would never run."""
    marking = {path for path in _files("tests") if re.search(r"\bmark\.slow\b", path.read_text("utf-8"))} - {
        Path(__file__)
    }
    found = {path for path in marking if path.match("test_*.py") and "pytest.mark.slow" in path.read_text("utf-8")}
    assert len(found) > 50
    assert marking == found


def test_the_files_that_run_first_exist() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


def test_classes_are_decoded_by_decoders_that_are_made_with_them() -> None:
    """`msgspec.json.decode(…, type=Class)` crashes the process if two threads are the first to decode the class."""
    found = [
        f"{path}:{node.lineno}"
        for path in _files(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"msgspec.json.decode", "msgspec.msgpack.decode"}
        for keyword in node.keywords
        if keyword.arg == "type" and isinstance(keyword.value, ast.Name) and keyword.value.id not in {"kind", "str"}
    ]
    assert found == []
