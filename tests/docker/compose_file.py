"""docker/compose.yaml as docker compose reads it, with every variable, anchor and default resolved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = Path(sys.executable).with_name("docker-compose")
"""Installed with the development requirements, except for Python 3.10, for which it has no wheel."""


def resolved(*profiles: str, **variables: str) -> dict[str, Any]:
    """Return the project with these profiles active; AssertionError with compose's output if the file is invalid."""
    flags = [word for profile in profiles for word in ("--profile", profile)]
    done = subprocess.run(
        [COMPOSE, "--file", DOCKER / "compose.yaml", *flags, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
