from __future__ import annotations

import subprocess
import sys


def test_an_engine_process_imports_nothing_that_decodes_pictures() -> None:
    code = "import sys, service.processes.engine.server; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"simplejpeg", "PIL", "service.imaging.files"}.isdisjoint(imported)
