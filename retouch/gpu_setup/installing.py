"""Installs the chosen packages: those that every engine needs, then the first runtime that loads.

If a candidate fails, the reason is reported and the next one is tried. The record is `unfinished` until a runtime has
loaded; the candidate that overwrites the CPU's ONNX Runtime comes last and is undone if it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from retouch.gpu_setup.choice import GpuChoice, RuntimeCandidate, without_first
from retouch.gpu_setup.errors import InstallFailed
from retouch.gpu_setup.pip import Environment
from retouch.gpu_setup.record import GpuRecord, read_record, remove_record, write_record

HOW_TO_CONTINUE = (
    "Run `make serve` or `retouch install-gpu` again to continue from here (pip keeps what it has downloaded); "
    "`make serve CPU=1` or `retouch serve --device cpu` serves on the CPU meanwhile"
)
_OPEN_DEVICE = "from engines.cuda.api import open_cuda; print(open_cuda().device.name)"
_LOAD = {
    "trt": "from engines.trt.library import load_tensorrt; print(load_tensorrt().name)",
    "onnxrt-cuda": "from engines.cuda.onnxrt_cuda import start_onnxruntime; print(start_onnxruntime().__version__)",
}
_ONNXRUNTIME = "import onnxruntime"
_ONNXRUNTIME_VERSION = "from importlib.metadata import version; print(version('onnxruntime'))"
"""Code that prints the version of the CPU's package; its metadata stays when the GPU's package overwrites its files."""


@dataclass(frozen=True, slots=True)
class Checks:
    """Python code for each part: it succeeds in an environment where the part works, and prints the part's name.

    Args:
        device: opens the GPU.
        runtimes: loads the runtime of an engine.
        onnxruntime: loads ONNX Runtime.
    """

    device: str = _OPEN_DEVICE
    runtimes: tuple[tuple[str, str], ...] = tuple(_LOAD.items())
    onnxruntime: str = _ONNXRUNTIME

    def of(self, engine: str) -> str:
        """Return the code that loads the runtime of an engine."""
        return dict(self.runtimes)[engine]


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs into one environment.

    Args:
        environment: the environment.
        notify: called with each next step, as text.
        checks: code that checks whether a part works.
    """

    environment: Environment
    notify: Callable[[str], None]
    checks: Checks = Checks()

    def installed(self, choice: GpuChoice, facts: tuple[str, ...]) -> str:
        """Return the runtime that is installed for these facts and loads; empty if an installation is needed.

        Packages that were installed in another way, such as in an image, count and are recorded.

        Raises:
            InstallFailed: the record cannot be written.
        """
        record = read_record(self.environment.folder)
        if record is not None and (record.state != "done" or record.facts != facts):
            return ""
        if self.environment.ask(self.checks.device)[1]:
            return ""
        if record is not None:
            return "" if self.environment.ask(self.checks.of(record.engine))[1] else record.runtime
        for candidate in choice.candidates:
            if candidate.is_there or candidate.replaces_onnxruntime:
                name, error = self.environment.ask(self.checks.of(candidate.engine))
                if not error:
                    done = GpuRecord(
                        state="done", facts=facts, engine=candidate.engine, runtime=_named(candidate, name)
                    )
                    self._write(done)
                    return done.runtime
        return ""

    def install(self, choice: GpuChoice, facts: tuple[str, ...]) -> str:
        """Install the packages and the first candidate that works; returns its runtime.

        Raises:
            InstallFailed: the GPU cannot be opened, or no candidate works; the message has every reason.
        """
        before = GpuRecord(state="unfinished", facts=facts)
        try:
            self._write(before)
            self.notify(f"installing for CUDA {choice.cuda}: {', '.join(choice.packages)}")
            self.environment.install(choice.packages)
            self._open_device()
            candidate, runtime = self._install_first_that_works(choice)
            self._write(before.model_copy(update={"state": "done", "engine": candidate.engine, "runtime": runtime}))
        except InstallFailed as error:
            raise InstallFailed(f"{error}. {HOW_TO_CONTINUE}") from error
        return runtime

    def restore_cpu(self) -> bool:
        """Put the CPU's ONNX Runtime back if an interrupted installation left none that loads.

        Returns:
            Whether it was put back.

        Raises:
            InstallFailed: it could not be put back.
        """
        record = read_record(self.environment.folder)
        if record is None or record.state == "done":
            return False
        broken = bool(self.environment.ask(self.checks.onnxruntime)[1])
        if broken:
            self.notify("the installation for the GPU was interrupted: restoring the CPU's ONNX Runtime")
            self._put_onnxruntime_back()
        remove_record(self.environment.folder)
        return broken

    def _write(self, record: GpuRecord) -> None:
        try:
            write_record(self.environment.folder, record)
        except OSError as error:
            raise InstallFailed(f"{self.environment.folder} cannot be written ({error.strerror})") from error

    def _put_onnxruntime_back(self) -> None:
        """Install the CPU's ONNX Runtime again, in the version that the environment says it has, if it has any."""
        version, _ = self.environment.ask(_ONNXRUNTIME_VERSION)
        if version:
            self.environment.install([f"onnxruntime=={version}"], over=True)

    def _open_device(self) -> None:
        name, error = self.environment.ask(self.checks.device)
        if error:
            raise InstallFailed(f"the packages are installed, but the GPU does not open: {error}")
        self.notify(f"the GPU opens: {name}")

    def _install_first_that_works(self, choice: GpuChoice) -> tuple[RuntimeCandidate, str]:
        for name, why in choice.passed_over:
            self.notify(f"not {name}: {why}")
        while choice.candidates:
            candidate = choice.candidates[0]
            try:
                return candidate, self._install_candidate(candidate)
            except InstallFailed as error:
                self.notify(f"not {candidate.name}: {error}")
                choice = without_first(choice, str(error))
                if candidate.replaces_onnxruntime:
                    self._put_onnxruntime_back()
        reasons = "; ".join(f"{name}: {why}" for name, why in choice.passed_over)
        raise InstallFailed(f"no runtime for this GPU could be installed ({reasons})")

    def _install_candidate(self, candidate: RuntimeCandidate) -> str:
        """Install one candidate and load its runtime; return the runtime's name, or raise InstallFailed."""
        if candidate.requirements:
            size = f", about {candidate.gigabytes:g} GB" if candidate.gigabytes else ""
            self.notify(f"installing {candidate.name}{size}: {', '.join(candidate.requirements)}")
            self.environment.install(candidate.requirements, source=candidate.source, only_wheels=True)
        if candidate.folder is not None:
            link_packages(candidate.folder, self._site_packages())
        name, error = self.environment.ask(self.checks.of(candidate.engine))
        if error and candidate.replaces_onnxruntime:  # the CPU's package, installed later, has overwritten its files
            self.environment.install([candidate.requirements[0].replace("[cuda,cudnn]", "")], over=True)
            name, error = self.environment.ask(self.checks.of(candidate.engine))
        if error:
            raise InstallFailed(f"it is installed, but does not load: {error}")
        return _named(candidate, name)

    def _site_packages(self) -> Path:
        folder, error = self.environment.ask("import sysconfig; print(sysconfig.get_path('purelib'))")
        if error:
            raise InstallFailed(f"{self.environment.python} does not run: {error}")
        return Path(folder)


def _named(candidate: RuntimeCandidate, name: str) -> str:
    return f"{candidate.name} {name}" if candidate.replaces_onnxruntime else name


def link_packages(module: Path, site_packages: Path) -> None:
    """Link a TensorRT of the system into an environment: its module, and the packages beside it that it imports."""
    for source in sorted(module.parent.glob("tensorrt*")):
        target = site_packages / source.name
        if source.is_dir() and not target.exists():
            target.symlink_to(source)
