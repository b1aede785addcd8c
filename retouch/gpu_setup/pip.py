"""pip in a virtual environment, and questions to that environment's Python; pip's own output stays visible."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from retouch.gpu_setup.errors import InstallFailed

_QUESTION_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that packages are installed into.

    Args:
        python: its Python, which has pip.
        folder: its folder.
        on_stderr: whether pip's output goes to standard error, because a program reads the standard output.
    """

    python: Path
    folder: Path
    on_stderr: bool = False

    @classmethod
    def of_this_process(cls, *, on_stderr: bool = False) -> Environment:
        """Return the environment that this process runs in."""
        return cls(Path(sys.executable), Path(sys.prefix), on_stderr)

    def install(
        self, requirements: Sequence[str], *, source: str = "", only_wheels: bool = False, over: bool = False
    ) -> None:
        """Install packages.

        Args:
            requirements: names and versions.
            source: a package index, or a folder of wheels, in addition to the configured ones.
            only_wheels: refuse source packages: TensorRT's on PyPI are stubs that fetch from elsewhere.
            over: reinstall these packages without their dependencies, over a package that has overwritten their files.

        Raises:
            InstallFailed: pip failed; its output says why.
        """
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
        if source:
            command += ["--extra-index-url" if "://" in source else "--find-links", source]
        command += ["--only-binary=:all:"] if only_wheels else []
        command += ["--force-reinstall", "--no-deps"] if over else []
        try:
            said = sys.__stderr__ if self.on_stderr else None
            done = subprocess.run([*command, *requirements], check=False, stdout=said)  # noqa: S603 -- our own list
        except OSError as error:
            raise InstallFailed(f"pip does not start ({error.strerror})") from error
        if done.returncode:
            raise InstallFailed(f"pip could not install {', '.join(requirements)} (its reason is above)")

    def ask(self, code: str) -> tuple[str, str]:
        """Run Python code in the environment; returns what it printed, and the error that ended it, if any."""
        try:
            done = subprocess.run(  # noqa: S603 -- our own code
                (self.python, "-c", code), capture_output=True, text=True, timeout=_QUESTION_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", f"{type(error).__name__}: {error}"
        if done.returncode == 0:
            return done.stdout.strip(), ""
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return "", lines[-1].strip() if lines else f"it ended with status {done.returncode}"
