"""The record of what `retouch install-gpu` did in this environment, in a file beside its packages.

It is written before the first change, so that an interrupted installation is recognised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from engines.files.atomic import write_atomically
from engines.files.regular import read_regular
from retouch.gpu_setup.choice import GpuChoice
from retouch.gpu_setup.host import GpuHost

RECORD_FILE = "retouch-gpu.json"
_MAX_BYTES = 2**16


class GpuRecord(BaseModel):
    """An installation and the host that it was made for.

    state: `unfinished` from the first change until the runtime has loaded.
    facts: GPUs, driver branch, Python and packages; if they change, the choice is made again.
    engine: the engine that was installed.
    runtime: its runtime, with the version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Literal["unfinished", "done"]
    facts: tuple[str, ...]
    engine: Literal["trt", "onnxrt-cuda", ""] = ""
    runtime: str = ""


def facts_of(host: GpuHost, choice: GpuChoice) -> tuple[str, ...]:
    """Return the facts that an installation depends on; whether NVIDIA's index is reachable is not among them."""
    gpus = sorted({f"{gpu.name} {gpu.capability[0]}.{gpu.capability[1]}" for gpu in host.driver.gpus})
    python = f"Python {host.python[0]}.{host.python[1]}"
    return (*gpus, f"driver {host.driver.version[0]}", python, *choice.packages)


def read_record(environment: Path) -> GpuRecord | None:
    """Return the record of a virtual environment; None if there is none that can be read."""
    try:
        return GpuRecord.model_validate_json(read_regular(environment / RECORD_FILE, _MAX_BYTES))
    except (OSError, ValidationError):
        return None


def write_record(environment: Path, record: GpuRecord) -> None:
    """Write the record.

    Raises:
        OSError: the environment cannot be written.
    """
    write_atomically(environment / RECORD_FILE, record.model_dump_json(indent=1).encode())


def remove_record(environment: Path) -> None:
    """Remove the record, if there is one."""
    (environment / RECORD_FILE).unlink(missing_ok=True)
