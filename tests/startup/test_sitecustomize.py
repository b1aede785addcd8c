from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TRACED = """
import sys
seen = set()

def trace(frame, event, _argument):
    seen.add((frame.f_globals["__name__"], frame.f_lineno))
    return trace

sys.settrace(trace)
import tests.own
sys.settrace(None)
print(sorted(line for name, line in seen if name == "tests.own" and line), any(name == "foreign" for name, _ in seen))
"""


def test_modules_of_others_are_imported_untraced_and_every_line_of_our_own_is_traced(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "own.py").write_text("a = 1\nimport foreign\nb = foreign.c\nd = 4\n")
    (tmp_path / "foreign.py").write_text("c = 2\n")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(tmp_path)])}
    found = subprocess.run([sys.executable, "-c", TRACED], env=environ, check=True, capture_output=True, text=True)
    assert found.stdout == "[1, 2, 3, 4] False\n"
