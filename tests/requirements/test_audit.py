"""The audit of pins: it finds exactly the advisories that apply, by list of versions and by range."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

ADVISORY = """\
id: PYSEC-2024-1
modified: 2024-05-06T00:00:00Z
aliases: [CVE-2024-1]
affected:
- package: {ecosystem: PyPI, name: Some_Package}
  ranges:
  - type: ECOSYSTEM
    events: EVENTS
  versions: VERSIONS
"""


def audit(tmp_path: Path, pins: str, events: str = "[]", versions: str = "[]", more: str = "") -> tuple[int, str]:
    folder = tmp_path / "vulns" / "some-package"
    folder.mkdir(parents=True)
    text = ADVISORY.replace("EVENTS", events).replace("VERSIONS", versions) + more
    (folder / "PYSEC-2024-1.yaml").write_text(text)
    (tmp_path / "pins.txt").write_text(pins)
    command = [sys.executable, ROOT / "requirements/audit.py", tmp_path / "pins.txt", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("events", "applies"),
    [
        ('[{introduced: "0"}, {fixed: "1.10"}]', True),
        ('[{introduced: "0"}, {fixed: "1.9"}]', False),
        ('[{introduced: "1.9.1"}]', False),
        ('[{introduced: "0"}]', True),
        ('[{introduced: "0"}, {last_affected: "1.9"}]', True),
        ('[{introduced: "0"}, {last_affected: "1.8"}]', False),
        ('[{introduced: "0"}, {fixed: "1.2"}, {introduced: "1.5"}]', True),
        ('[{introduced: "1.5"}, {fixed: "1.10"}, {introduced: "0"}, {fixed: "1.2"}]', True),
        ('[{fixed: "1.5"}, {introduced: "0"}]', False),
        ('[{introduced: "0"}, {fixed: "no version"}]', True),
    ],
)
def test_a_range_of_versions(tmp_path: Path, events: str, applies: bool) -> None:
    status, said = audit(tmp_path, "some-package==1.9 ; python_version < '3.11'\n", events)
    assert status == int(applies), said
    assert ("some-package 1.9: PYSEC-2024-1 CVE-2024-1" in said) is applies


def test_a_list_of_versions(tmp_path: Path) -> None:
    assert audit(tmp_path, "some.package==1.9\n", versions='["1.8", "1.9"]')[0] == 1


def test_another_package_and_what_is_withdrawn_do_not_count(tmp_path: Path) -> None:
    status, said = audit(tmp_path, "# pins\nother==1.9\n", '[{introduced: "0"}]')
    assert (status, "1 advisories, the newest of 2024-05-06; of 0 of 1 packages" in said) == (0, True), said


def test_withdrawn_ones_alone_are_no_database(tmp_path: Path) -> None:
    status, said = audit(
        tmp_path, "some-package==1.9\n", '[{introduced: "0"}]', more="withdrawn: 2024-06-01T00:00:00Z\n"
    )
    assert status == 1
    assert "no advisories under" in said
