"""The rights that a sandboxed child process keeps, tested in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from export.foreign.messages import Enforced

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
PREFACE = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from export.foreign.isolation import isolate
from export.foreign.messages import Limits
held = isolate(Limits(memory_bytes=2**30, seconds=30), Path({scratch!r}), [Path({readable!r})])
"""


@pytest.fixture
def after_isolation(tmp_path):
    """Run code in an isolated process with `tmp_path/scratch` as its folder; returns its output."""
    for name in ("scratch", "readable", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    def run(code: str) -> str:
        preface = PREFACE.format(root=str(ROOT), scratch=str(tmp_path / "scratch"), readable=str(tmp_path / "readable"))
        done = subprocess.run(
            [sys.executable, "-c", f"{preface}\nhere = {str(tmp_path)!r}\n{code}"],
            capture_output=True,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
        )
        return done.stdout.strip() + done.stderr.strip().rpartition("\n")[2]

    return run


@pytest.fixture
def held(after_isolation) -> Enforced:
    return Enforced.model_validate_json(after_isolation("print(held.model_dump_json())"))


def test_an_allocation_beyond_the_limit_fails(after_isolation):
    assert "MemoryError" in after_isolation("bytearray(2**31)")


def test_the_limits_that_are_enforced_are_reported(held):
    assert held.memory == "1 GiB of address space"
    assert held.time == "30 s, then it is killed"


def test_the_network_is_cut_off_where_the_report_says_so(after_isolation, held):
    if held.network.startswith("not enforced"):
        pytest.skip("this kernel allows neither a namespace nor Landlock")
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 2)"
    assert "Error" in after_isolation(code)


def test_only_the_scratch_folder_is_writable_where_the_report_says_so(after_isolation, held):
    if held.files.startswith("not enforced"):
        pytest.skip("this kernel has no Landlock")
    assert after_isolation("print(Path(here, 'scratch/new').write_text('x'))") == "1"
    assert after_isolation("print(Path(here, 'readable/file').read_text())") == "readable"
    assert "PermissionError" in after_isolation("Path(here, 'readable/file').write_text('x')")
    assert "PermissionError" in after_isolation("Path(here, 'elsewhere/file').write_text('x')")
    assert "PermissionError" in after_isolation("Path(here, 'elsewhere/file').read_text()")
    assert "PermissionError" in after_isolation("import subprocess; subprocess.run(['/bin/true'])")
