"""A wall clock for the processes of one host, which can be shifted from the machine's; needs a C compiler."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("clock_shift.c")


@dataclass(frozen=True, slots=True)
class HostClock:
    """A clock for all processes that are started with `environ`; `host_clock` makes one."""

    library: Path
    file: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_SHIFT_FILE": str(self.file)}

    def shift(self, seconds: int) -> None:
        """Set the difference from the machine's clock, in seconds; running processes see it at once."""
        with self.file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


def host_clock(folder: Path) -> HostClock:
    """Make a clock without a shift; its files are in `folder`. Skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("shifting clocks needs a C compiler: apt-get install gcc")
    clock = HostClock(folder / "clock.so", folder / "clock")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-o", clock.library, _SOURCE], check=True)
    clock.file.write_bytes(bytes(8))
    return clock
