"""The source of another revision in a separate folder, and the environment that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from benchmarks.harness.inputs import ROOT


def source_of(revision: str, folder: Path) -> Path:
    """Return a folder with the source of `revision`: the working tree for ".", a new copy in `folder` otherwise.

    Raises:
        SystemExit: git does not know the revision.
    """
    if revision == ".":
        return ROOT
    command = ["git", "-C", str(ROOT), "archive", revision]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git cannot give the source of {revision}: {done.stderr.decode().strip()}")
    target = folder / f"source-{revision.replace('/', '-')}"
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(target)
    return target


def environment(source: Path) -> dict[str, str]:
    """Return environment variables with which this interpreter imports the packages of `source`, not installed ones.

    Raises:
        SystemExit: the interpreter imports installed packages nevertheless.
    """
    environ = {"PYTHONPATH": str(source)}
    program = "import engines, retouch, service; print(*engines.__path__, *retouch.__path__, *service.__path__)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env={**os.environ, **environ}, cwd=source, capture_output=True, text=True, check=False
    )
    strangers = [path for path in done.stdout.split() if Path(path).parent != source]
    if done.returncode or strangers:
        raise SystemExit(f"the source in {source} cannot be imported alone: {strangers}{done.stderr}")
    return environ
