"""The facts of a host that decide which GPU packages it can have: GPUs, driver, Python, TensorRT, NVIDIA's index.

Nothing here imports a CUDA library: the driver is asked through nvidia-smi, which comes with it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engines.errors import EngineError
from engines.trt.library import load_tensorrt

NVIDIA_INDEX = "https://pypi.nvidia.com"
INDEX_VARIABLE = "RETOUCH_NVIDIA_INDEX"
_QUERY = ("--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
_WSL_FOLDER = "/usr/lib/wsl/lib"
"""nvidia-smi of WSL, which is not on every PATH."""
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_SMI_SECONDS = 30.0
"""A driver that is loaded for the first question takes seconds for each GPU."""
_SYSTEM_TENSORRT = (
    "import json, pathlib, tensorrt as t;"
    "assert hasattr(t, 'OnnxParser');"
    "print(json.dumps([t.__version__, str(pathlib.Path(t.__file__).parent)]))"
)


class Gpu(NamedTuple):
    """An NVIDIA GPU and its compute capability."""

    name: str
    capability: tuple[int, int]


class SystemTensorRt(NamedTuple):
    """A TensorRT of the system's Python: its version and the folder of its module."""

    version: str
    folder: Path


class Driver(NamedTuple):
    """The answer of the NVIDIA driver: its version and GPUs, or why there is none.

    Args:
        version: such as (580, 159, 4); empty without a driver that answers.
        gpus: those that it shows.
        problem: why a card that is there cannot be used; empty where there is no card, or no problem.
    """

    version: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GpuHost:
    """Everything that the choice of packages depends on.

    driver: what the NVIDIA driver says.
    python: major and minor version of the Python to install for.
    system: as `sys.platform`.
    machine: the processor's architecture: `x86_64`, `aarch64`.
    tensorrt: the TensorRT that this Python can import; empty without one.
    system_tensorrt: that of the system's Python, if it is of the same version.
    nvidia_index: the address of NVIDIA's package index, if it answers; else empty.
    """

    driver: Driver
    python: tuple[int, int]
    system: str = "linux"
    machine: str = "x86_64"
    tensorrt: str = ""
    system_tensorrt: SystemTensorRt | None = None
    nvidia_index: str = ""


def this_host(environ: Mapping[str, str] = os.environ) -> GpuHost:
    """Return the facts of this host that need no network: `nvidia_index` is empty."""
    driver = ask_driver(environ)
    found = driver.gpus != ()
    return GpuHost(
        driver,
        (sys.version_info.major, sys.version_info.minor),
        sys.platform,
        platform.machine(),
        _importable_tensorrt() if found else "",
        find_system_tensorrt(base_python()) if found else None,
    )


def ask_driver(environ: Mapping[str, str], pci: Path = Path("/sys/bus/pci/devices")) -> Driver:
    """Ask the NVIDIA driver for its version and GPUs.

    Args:
        environ: `PATH` has nvidia-smi; `CUDA_VISIBLE_DEVICES` may hide all GPUs.
        pci: the folder in which the kernel shows the cards, also those without a driver.
    """
    if environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}:
        return Driver()
    command = shutil.which("nvidia-smi", path=os.pathsep.join((environ.get("PATH", os.defpath), _WSL_FOLDER)))
    if command is None:
        return Driver(problem="no driver for it: nvidia-smi is not installed" if _has_card(pci) else "")
    try:
        done = subprocess.run(  # noqa: S603 -- the driver's own command
            (command, *_QUERY), capture_output=True, text=True, timeout=_SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Driver(problem=f"nvidia-smi does not answer ({type(error).__name__})")
    if done.returncode:
        return Driver(problem=f"nvidia-smi fails: {_first_line(done.stdout + done.stderr)}")
    return read_answer(done.stdout)


def read_answer(text: str) -> Driver:
    """Read nvidia-smi's lines of name, driver version and compute capability."""
    found = [re.fullmatch(r"(.+), ([\d.]+), (\d+)\.(\d+)", line.strip()) for line in text.strip().splitlines()]
    lines = [match for match in found if match is not None]
    if not lines or len(lines) < len(found):
        return Driver(problem=f"nvidia-smi shows no usable GPU: {_first_line(text)}")
    gpus = tuple(Gpu(match[1], (int(match[3]), int(match[4]))) for match in lines)
    return Driver(tuple(map(int, lines[0][2].split("."))), gpus)


def base_python() -> Path:
    """Return the Python that this virtual environment was made of, or itself."""
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def find_system_tensorrt(python: Path) -> SystemTensorRt | None:
    """Return the TensorRT of that Python, such as one from NVIDIA's Debian packages; None without one."""
    try:
        done = subprocess.run(  # noqa: S603 -- our own code
            (python, "-I", "-c", _SYSTEM_TENSORRT), capture_output=True, text=True, timeout=_SMI_SECONDS, check=True
        )
        version, folder = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return SystemTensorRt(version, Path(folder))


def index_answers(address: str, seconds: float = 5.0) -> bool:
    """Return whether a package index has TensorRT's library; a folder of wheels counts as an index."""
    if "://" not in address:
        return any(Path(address).glob("tensorrt_cu*_libs-*.whl"))
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/tensorrt-cu13-libs/", timeout=seconds) as answer:  # noqa: S310 -- the operator's own address
            return bool(answer.status < 400)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def _importable_tensorrt() -> str:
    try:
        return load_tensorrt().name
    except EngineError:
        return ""


def _has_card(pci: Path) -> bool:
    """Return whether an NVIDIA graphics card is in this host, with a driver or without."""
    cards = (vendor.parent for vendor in pci.glob("*/vendor"))
    return any(_reads(card / "vendor", _NVIDIA) and _reads(card / "class", _DISPLAY) for card in cards)


def _reads(path: Path, beginning: str) -> bool:
    try:
        return path.read_text().startswith(beginning)
    except OSError:  # the card went away just now
        return False


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it says nothing")[:200]
