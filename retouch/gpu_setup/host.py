"""The facts of a host that decide which GPU packages it can have: GPUs, driver, Python, TensorRT, NVIDIA's index.

Nothing here imports a CUDA library: the driver is queried with nvidia-smi, which comes with it.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engines.errors import EngineError
from engines.trt.library import load_tensorrt
from retouch.gpu_setup.errors import InstallFailed

NVIDIA_INDEX = "https://pypi.nvidia.com"
INDEX_VARIABLE = "RETOUCH_NVIDIA_INDEX"
_QUERY = ("--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_PYTHON_SECONDS = 30.0
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
        gpus: the GPUs that it shows.
        problem: why an installed card cannot be used; empty if there is no card, or no problem.
    """

    version: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GpuHost:
    """Everything that the choice of packages depends on.

    driver: the answer of the NVIDIA driver.
    python: major and minor version of the Python to install for.
    system: as `sys.platform`.
    machine: the processor's architecture: `x86_64`, `aarch64`.
    tensorrt: name and version of the TensorRT that this Python can import; empty without one.
    system_tensorrt: the TensorRT of the system's Python, if that Python has the same version.
    nvidia_index: the address of NVIDIA's package index, if it answers; else empty.
    """

    driver: Driver
    python: tuple[int, int]
    system: str = "linux"
    machine: str = "x86_64"
    tensorrt: str = ""
    system_tensorrt: SystemTensorRt | None = None
    nvidia_index: str = ""


def this_host(environ: Mapping[str, str] = os.environ, notify: Callable[[str], None] = lambda _: None) -> GpuHost:
    """Return the facts of this host that need no network: `nvidia_index` is empty.

    Args:
        environ: as for `ask_driver`.
        notify: called with the action in progress if it takes long.
    """
    driver = ask_driver(environ, limits=TimeLimits(notify=notify))
    found = driver.gpus != ()
    return GpuHost(
        driver,
        (sys.version_info.major, sys.version_info.minor),
        sys.platform,
        platform.machine(),
        _importable_tensorrt() if found else "",
        find_system_tensorrt(base_python()) if found else None,
    )


class SearchFolders(NamedTuple):
    """The folders of a host that are searched.

    pci: lists the PCI devices, also cards without a driver.
    wsl: has nvidia-smi under WSL, where not every PATH includes it.
    """

    pci: Path = Path("/sys/bus/pci/devices")
    wsl: Path = Path("/usr/lib/wsl/lib")


class TimeLimits(NamedTuple):
    """Time limits for the driver's answer.

    seconds: time until the driver counts as stuck: 30, because a driver that this call loads takes seconds per GPU.
    quiet_seconds: time until `notify` is called with the action in progress.
    kill_seconds: time that a killed nvidia-smi gets to end; one that is blocked in the driver does not end.
    """

    seconds: float = 30.0
    quiet_seconds: float = 3.0
    kill_seconds: float = 1.0
    notify: Callable[[str], None] = lambda _: None


_THIS_HOST, _DEFAULT_LIMITS = SearchFolders(), TimeLimits()


def ask_driver(
    environ: Mapping[str, str], folders: SearchFolders = _THIS_HOST, limits: TimeLimits = _DEFAULT_LIMITS
) -> Driver:
    """Ask the NVIDIA driver for its version and GPUs.

    Args:
        environ: `PATH` has nvidia-smi; `CUDA_VISIBLE_DEVICES` may hide all GPUs.
        folders: the folders to search besides.
        limits: the time limits of the answer.
    """
    if environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}:
        return Driver()
    command = shutil.which("nvidia-smi", path=os.pathsep.join((environ.get("PATH", os.defpath), str(folders.wsl))))
    if command is None:
        return Driver(problem="no driver for it: nvidia-smi is not installed" if _has_card(folders.pci) else "")
    try:
        status, answer, problem = _run_bounded((command, *_QUERY), limits)
    except OSError as error:
        return Driver(problem=f"nvidia-smi does not start ({error.strerror})")
    except subprocess.TimeoutExpired:
        return Driver(problem=f"nvidia-smi does not answer within {limits.seconds:g} s")
    return read_answer(answer) if status == 0 else Driver(problem=f"nvidia-smi fails: {_first_line(answer + problem)}")


def _run_bounded(command: Sequence[str], limits: TimeLimits) -> tuple[int, str, str]:
    """Run a command and return its status, output and errors. If it takes too long, it is killed, or else abandoned.

    Output and errors go to files: reading a pipe would wait for every process that has inherited it.

    Raises:
        TimeoutExpired: the command took too long.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 -- the driver's own command
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            _wait(process, limits)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # if it is blocked in the driver, it ends when the driver returns
                process.wait(limits.kill_seconds)
            raise
        for file in (output, errors):
            file.seek(0)
        return process.returncode, output.read().decode(errors="replace"), errors.read().decode(errors="replace")


def _wait(process: subprocess.Popen[bytes], limits: TimeLimits) -> None:
    try:
        process.wait(min(limits.quiet_seconds, limits.seconds))
    except subprocess.TimeoutExpired:
        limits.notify("asking the NVIDIA driver")
        process.wait(max(0.0, limits.seconds - limits.quiet_seconds))


def read_answer(text: str) -> Driver:
    """Read nvidia-smi's lines of name, driver version and compute capability."""
    found = [re.fullmatch(r"(.+), ([\d.]+), (\d+)\.(\d+)", line.strip()) for line in text.strip().splitlines()]
    lines = [match for match in found if match is not None]
    if not lines or len(lines) < len(found):
        return Driver(problem=f"nvidia-smi shows no usable GPU: {_first_line(text)}")
    gpus = tuple(Gpu(match[1], (int(match[3]), int(match[4]))) for match in lines)
    return Driver(tuple(map(int, lines[0][2].split("."))), gpus)


def base_python() -> Path:
    """Return the Python that this virtual environment is based on; outside one, this Python."""
    return Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


def find_system_tensorrt(python: Path) -> SystemTensorRt | None:
    """Return the TensorRT that a Python can import, such as one from NVIDIA's Debian packages; None without one."""
    try:
        done = subprocess.run(  # noqa: S603 -- our own code
            (python, "-I", "-c", _SYSTEM_TENSORRT), capture_output=True, text=True, timeout=_PYTHON_SECONDS, check=True
        )
        version, folder = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return SystemTensorRt(version, Path(folder))


def index_answers(address: str, seconds: float = 5.0) -> bool:
    """Return whether a package index has TensorRT's library; a folder of wheels counts as an index.

    Raises:
        InstallFailed: the address is not valid.
    """
    if "://" not in address:
        return any(Path(address).glob("tensorrt_cu*_libs-*.whl"))
    if not address.startswith(("http://", "https://")):
        raise _no_address(address, "neither http nor https")
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/tensorrt-cu13-libs/", timeout=seconds) as answer:  # noqa: S310 -- the operator's own address
            return bool(answer.status < 400)
    except (http.client.InvalidURL, ValueError) as error:
        raise _no_address(address, str(error)) from error
    except (OSError, http.client.HTTPException):
        return False


def _no_address(address: str, why: str) -> InstallFailed:
    return InstallFailed(
        f"{address!r} is not the address of a package index ({why}); set {INDEX_VARIABLE} or --nvidia-index to an http "
        "address or a folder of wheels, or leave them out"
    )


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
    except OSError:  # the card has just been removed
        return False


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")[:200]
