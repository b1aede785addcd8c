"""A process whose launcher runs a different version of the code exits and says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.settings import Settings, load_settings
from service.processes.shared.assignment import Assignment, CodeChanged, read_assignment
from service.processes.shared.code_version import code_version

ROOT = Path(__file__).parents[4]
ASSIGNMENT = Assignment(
    code="0.3.0+01234567",
    role="engine",
    index=0,
    launcher=1,
    settings=Settings(),
    sockets=("engine-0.sock",),
    board=3,
    front_ends=1,
    engines=1,
    listener=4,
)


@pytest.mark.parametrize("folder", ["results", "/räume/日本", os.fsdecode(b"/\xff\xfe")])
def test_an_assignment_of_the_same_code_arrives_whole(folder: str) -> None:
    settings = load_settings({"results_dir": folder, "keys_file": f"{folder}/keys.json"}, {})
    sent = ASSIGNMENT.model_copy(update={"settings": settings})
    assert read_assignment(sent.to_json(), sent.code) == sent


@pytest.mark.parametrize(
    ("launchers", "named"), [({"code": "0.4.0+01234567", "new": 1}, "0.4.0"), ({}, "an older one")]
)
def test_one_of_other_code_is_refused_whatever_else_is_in_it(launchers: dict[str, object], named: str) -> None:
    with pytest.raises(CodeChanged, match=rf"started with {named}.* finds 0\.3\.0\+01234567 now: restart the server"):
        read_assignment(json.dumps(launchers).encode(), ASSIGNMENT.code)


@pytest.mark.parametrize("changed", ["service/devices/memory_layout.py", "engines/tensors.py"])
def test_the_version_changes_with_what_the_processes_share(tmp_path: Path, changed: str) -> None:
    for package in ("service", "engines"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    before = code_version(tmp_path)
    assert before == code_version()
    with (tmp_path / changed).open("a") as file:
        file.write("# changed\n")
    assert code_version(tmp_path) != before


def test_an_editors_lock_beside_a_source_file_is_no_part_of_the_version(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "app.py").write_text("")
    before = code_version(tmp_path)
    (tmp_path / "service" / ".#app.py").symlink_to("user@host.1")  # Emacs writes it while app.py has unsaved changes
    assert code_version(tmp_path) == before


@pytest.mark.slow
def test_the_process_ends_with_that_message_and_no_traceback() -> None:
    command, given = [sys.executable, "-m", "service.processes"], ASSIGNMENT.to_json().decode()
    ended = subprocess.run(command, input=given, text=True, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("the package was changed under a running server")
    assert "Traceback" not in ended.stderr
