"""The tests with environments of their own import only what is installed there; `make test` does not run them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("tests", "engines", "export", "retouch", "service", "training")
DISTRIBUTIONS = {"PIL": "pillow", "grpc": "tritonclient"}
"""Distributions by the packages that they bring under another name; tritonclient's extra brings grpc."""

SMOKE = [
    *(f"foreign_clients/test_{name}.py" for name in ("openai", "tritonclient", "tritonclient_grpc")),
    *("foreign_clients/conftest.py", "browser/test_filling.py", "browser/conftest.py"),
]
ENVIRONMENTS = {
    "browser": ["browser/*.py"],
    "clients": ["clients/*.py"],
    "foreign_clients": ["foreign_clients/**/*.py"],
    "smoke": SMOKE,
}
"""Files of each environment, below tests/."""


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_tests_of_an_environment_import_only_what_is_installed_there(name: str) -> None:
    files = [path for pattern in ENVIRONMENTS[name] for path in sorted((ROOT / "tests").glob(pattern))]
    assert len(files) >= len(ENVIRONMENTS[name])
    installed = _installed(name)
    missing = {path: sorted(packages - installed) for path, packages in _imported(files).items()}
    assert {str(path): packages for path, packages in missing.items() if packages} == {}


def _installed(name: str) -> set[str]:
    """The distributions that the Makefile installs into an environment."""
    folder = "foreign_clients" if name == "smoke" else name
    lines = (ROOT / "tests" / folder / "requirements.txt").read_text("utf-8").splitlines()
    if name == "smoke":
        chosen = re.search(r"grep -E '(.+)' \$<", (ROOT / "Makefile").read_text("utf-8"))
        assert chosen is not None
        lines = [line for line in lines if re.match(chosen[1], line)]
    return {re.split(r"[\[=]", line)[0].replace("-", "_") for line in lines}


def _imported(files: list[Path]) -> dict[Path, set[str]]:
    """The distributions that each of the files needs on import, and each of our modules that these import."""
    found: dict[Path, set[str]] = {}
    waiting = list(files)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = set()
        for module in _modules(path):
            root = module.partition(".")[0]
            if root in OURS:
                waiting += _files_of(module)
            elif root not in sys.stdlib_module_names and not (path.parent / f"{root}.py").exists():
                found[path].add(DISTRIBUTIONS.get(root, root))
    return found


def _modules(path: Path) -> Iterator[str]:
    """The modules that a file imports when it is imported itself; those inside functions are not."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _files_of(module: str) -> list[Path]:
    """The files that importing a module of ours reads: it, if it is one, and the packages around it."""
    parts = module.split(".")
    packages = [ROOT.joinpath(*parts[: i + 1]) / "__init__.py" for i in range(len(parts))]
    return [path for path in (*packages, ROOT.joinpath(*parts).with_suffix(".py")) if path.is_file()]
