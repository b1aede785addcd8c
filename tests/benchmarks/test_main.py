"""`python -m benchmarks` lists the programs."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.__main__ import FOLDER, programs


def test_every_program_says_what_it_does_and_shows_its_own_command() -> None:
    found = dict(programs())
    assert {"benchmarks.load.serving", "benchmarks.texture"} <= set(found)
    assert [module for module, purpose in found.items() if not purpose.endswith(".")] == []
    for module in found:
        path = FOLDER.parent / f"{module.replace('.', '/')}.py"
        text = (
            (path if path.exists() else path.with_suffix("") / "__main__.py").read_text("utf-8").partition('"""\n')[0]
        )
        assert module in text or path.name in text, f"{module} shows no example"


def test_the_list_is_printed_without_importing_the_programs() -> None:
    code = "import runpy, sys; sys.argv = ['x']; runpy.run_module('benchmarks', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('numpy' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert "python -m benchmarks.load.serving\n" in done.stdout
    assert done.stdout.endswith("False\n")
