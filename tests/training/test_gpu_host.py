"""The commands for a borrowed GPU host (gpu_host.sh), with a fake python3, pass each config the host's paths."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from training.config import load_config

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted(path.stem for path in (ROOT / "training/configs").glob("*.toml"))


def overrides_of(command: list[str], work: Path) -> list[str]:
    """Run a command of gpu_host.sh; returns the values of --set that it passes to the training."""
    programs, called = work / "bin", work / "called"
    programs.mkdir(parents=True)
    (programs / "python3").write_text(f'#!/bin/sh\necho "$*" >>"{called}"\n')
    (programs / "python3").chmod(0o755)
    given = {"PATH": f"{programs}:{os.environ['PATH']}", "WORK": str(work), "OUT": str(work / "out"), "FIRST_S": "0"}
    script = ["bash", str(ROOT / "training/gpu_host.sh"), *command]
    subprocess.run(script, env=os.environ | given, capture_output=True, timeout=60, check=False)
    return re.findall(r"--set (\S+)", called.read_text())


def paths_in(section: BaseModel) -> Iterator[Path]:
    for _, value in section:
        if isinstance(value, Path):
            yield value
        elif isinstance(value, BaseModel):
            yield from paths_in(value)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_gets_no_option_that_it_lacks_and_every_path_on_that_host(name: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/0.tar").touch()
    config = load_config(ROOT / f"training/configs/{name}.toml", overrides_of(["profile", name], tmp_path))
    paths = list(paths_in(config))
    assert len(paths) > 1
    assert [path for path in paths if tmp_path not in path.parents] == []


def test_pictures_are_taken_one_by_one_where_there_are_no_shards(tmp_path: Path) -> None:
    given = overrides_of(["profile", "photos"], tmp_path)
    assert {"data.layout=folder", f"data.path={tmp_path}/pictures"} <= set(given)
