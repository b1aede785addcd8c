"""Measures peak memory and time of `retouch export` for generators at full width, each in its own process.

    python -m benchmarks.host.export_memory [--only "pix2pixHD global" …] [--json export_memory.json]

The generators are the cases of family_cases.py with random weights. The peak is the child process's largest resident
set, as /usr/bin/time -v prints it. The parity measured by the export is printed too: the smallest PSNR of each graph.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WANTED = ("pix2pixHD global", "PD-GAN diverse, one sample")
_PARTS = {"EN": "prior.EN.", "DE": "prior.DE.", "PDGAN": "PDGAN."}
"""Files of a PD-GAN, and the name of each net in our generator."""


def write_checkpoints(name: str, folder: Path) -> list[Path]:
    """Write the public files of one case; runs in a child process, so that its memory is not counted."""
    import torch  # noqa: PLC0415 -- the parent process does not need it

    from benchmarks.gpu_engines.family_cases import CASES, build_net  # noqa: PLC0415 -- loads torch

    case = next(case for case in CASES if case.name == name)
    state = build_net(case).state_dict()
    if case.family != "pdgan":
        torch.save(state, folder / "net_G.pth")
        return [folder / "net_G.pth"]
    for part, home in _PARTS.items():
        own = {key.removeprefix(home): tensor for key, tensor in state.items() if key.startswith(home)}
        torch.save(own, folder / f"net_{part}.pth")
    return [folder / f"net_{part}.pth" for part in _PARTS]


def export(files: list[Path], output: Path) -> dict[str, Any]:
    """Export; returns seconds, peak memory in GB, and the worst parity of each graph."""
    retouch = Path(sys.executable).with_name("retouch")
    started = time.perf_counter()
    child = subprocess.Popen([retouch, "export", *files, "--name", "full", "--output", output, "--json"], stdout=-1)
    printed = child.stdout.read() if child.stdout else b""
    _, status, usage = os.wait4(child.pid, 0)
    found: dict[str, Any] = {"seconds": time.perf_counter() - started, "peak_gb": usage.ru_maxrss / 2**20}
    if os.waitstatus_to_exitcode(status):
        return found | {"error": printed.decode()}
    cases = json.loads((output / "full" / "1" / "manifest.json").read_text())["parity"]["cases"]
    for backend in sorted({case["backend"] for case in cases}):
        own = [case for case in cases if case["backend"] == backend]
        found[backend] = {
            "least_db": min(case["psnr_db"] for case in own if case["psnr_db"] is not None),
            "largest_difference": max(case["max_abs"] for case in own),
        }
    return found


def main() -> None:
    """Print a line for each generator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(WANTED), help="names of family_cases.py")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        print("\n".join(map(str, write_checkpoints(arguments.write[0], Path(arguments.write[1])))))
        return
    rows = {}
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.host.export_memory", "--write", name, folder]
            written = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
            rows[name] = export([Path(line) for line in written if line], Path(folder) / "models")
        print(f"{name}: {rows[name]}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
