"""The client and the command in an environment with httpx alone."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from retouch.__main__ import missing_packages

ROOT = Path(__file__).parents[2]


def needed(name: str) -> Iterator[importlib.metadata.Distribution]:
    """Yield a distribution and, recursively, its requirements on this Python, without extras."""
    distribution = importlib.metadata.distribution(name)
    yield distribution
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from needed(requirement.name)


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to exactly what `pip install retouch` installs."""
    folder = tmp_path_factory.mktemp("light")
    for name in ("engines", "export", "retouch", "service", "training"):
        (folder / name).symlink_to(ROOT / name)
    for distribution in needed("retouch"):
        for file in distribution.files or ():
            top = folder / file.parts[0]
            if file.parts[0] != ".." and not top.exists() and not file.name.startswith("__editable__"):
                top.symlink_to(Path(str(distribution.locate_file(file.parts[0]))))
    return folder


def run(light: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with only the standard library and that folder on its path."""
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env={**os.environ, "PYTHONPATH": str(light), "PYTHONSAFEPATH": "1"},
        cwd=light,
        capture_output=True,
        text=True,
        check=False,
    )


def modules_after(light: Path, statement: str) -> set[str]:
    done = run(light, "-c", f"import sys; {statement}; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_what_every_installation_has_is_httpx_alone() -> None:
    names = {Requirement(line).name for line in importlib.metadata.requires("retouch") or () if "extra ==" not in line}
    assert names == {"httpx"}


def test_the_client_loads_nothing_but_httpx_and_its_needs(light: Path) -> None:
    by_client, by_httpx = modules_after(light, "import retouch.client"), modules_after(light, "import httpx")
    assert by_client - by_httpx - sys.stdlib_module_names == {"retouch"}


def test_the_command_says_which_extra_to_install_instead_of_a_traceback(light: Path) -> None:
    done = run(light, "-m", "retouch", "--help")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: No module named 'typer': .*fastapi.*'\.\[serve\]' in the checkout.*\n", done.stderr)


def test_every_extra_that_runs_the_server_includes_it() -> None:
    lines = importlib.metadata.requires("retouch") or ()
    including = {found[1] for line in lines if (found := re.search(r'^retouch\[serve\]; extra == "(\w+)"', line))}
    assert including >= {"export", "gpu", "otel", "ray", "s3"}


def test_packages_of_other_extras_and_other_pythons_do_not_count_as_missing() -> None:
    lines = (
        "httpx>=0.28",
        'typer>=0.20; extra == "serve"',
        'fastapi>=0.120; extra == "serve"',
        'tomli>=2; python_version < "3.11" and extra == "serve"',
        'torch==2.13.0; extra == "export"',
    )
    assert missing_packages(lines, lambda name: name == "fastapi") == ["typer"]
    assert missing_packages(lines, lambda _: True) == []
