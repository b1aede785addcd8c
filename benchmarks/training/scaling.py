"""Compares training on one GPU and on several: images/s, and the losses of the same global batch.

    python -m benchmarks.training.scaling training/configs/photos.toml --gpus 1 2 --set data.path=DIR

Each run is `python -m training fit` of the config's first phase under torchrun, one after another, in a fresh run
directory. The first quarter of the lines of the log, which compilation and warm-up fall into, is left out of the speed.
Where the compiler's cache is empty it takes a minute or two for each number of GPUs: `--seconds` has to allow for it;
`--set compile=false` does without.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
LOG_EVERY = 10


def first_phase(config: str) -> str:
    """Return the config with its first phase only; later ones would train on, and compile again."""
    head, *phases = config.split("[[phase]]")
    return "[[phase]]".join([head, *phases[:1]])


def train(arguments: argparse.Namespace, gpus: int, output: Path) -> list[dict[str, Any]]:
    """Train and return the lines of the log."""
    knobs = [*arguments.set, f"output={output}", f"log_every={LOG_EVERY}", "sheet_every=1000000"]
    knobs += [f"phase.0.batch={arguments.batch}", f"phase.0.steps={arguments.steps}", "phase.0.warm_up=50"]
    config = output.with_suffix(".toml")
    config.write_text(first_phase(arguments.config.read_text("utf-8")), "utf-8")
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
    command = [sys.executable, *launcher, "-m", "training", "fit", str(config)]
    command += [word for knob in knobs for word in ("--set", knob)]
    command += ["--stop-after-seconds", str(arguments.seconds)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (output / "log.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if "images_per_s" in line and line["step"] <= arguments.steps]


def compared(curve: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, float]:
    """Compare speed and losses with the base: at each step, and over the last quarter."""

    def speed(lines: list[dict[str, Any]]) -> float:
        return statistics.median(line["images_per_s"] for line in lines[len(lines) // 4 :])

    shared = min(len(curve), len(base))
    apart = [abs(ours["loss"] - theirs["loss"]) for ours, theirs in zip(curve, base, strict=False)]
    tails = [statistics.mean(line["loss"] for line in lines[:shared][-shared // 4 :]) for lines in (curve, base)]
    return {
        "images_per_s": speed(curve),
        "ratio": speed(curve) / speed(base),
        "mean_loss_difference": statistics.mean(apart),
        "last_quarter_loss": tails[0],
        "last_quarter_difference": abs(tails[0] - tails[1]),
    }


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=256, help="global batch")
    parser.add_argument("--steps", type=int, default=400, help="of the config's first phase")
    parser.add_argument("--seconds", type=float, default=80, help="end each run after so long, compilation included")
    parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="as for fit")
    parser.add_argument("--json", type=Path, help="write figures and curves there")
    return parser.parse_args()


def main() -> None:
    """Train with each number of GPUs and compare with the first."""
    arguments = parsed()
    curves: dict[int, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for gpus in arguments.gpus:
            curves[gpus] = train(arguments, gpus, Path(folder) / str(gpus))
            figures = {done: compared(curve, curves[arguments.gpus[0]]) for done, curve in curves.items()}
            if arguments.json:  # written now in case the next run fails
                arguments.json.write_text(json.dumps({"figures": figures, "curves": curves}, indent=1) + "\n", "utf-8")
    table = Table(title=f"{arguments.config.stem}, global batch {arguments.batch}")
    columns = list(figures[arguments.gpus[0]])
    for name in ("GPUs", *columns):
        table.add_column(name)
    for gpus, row in figures.items():
        table.add_row(str(gpus), *(f"{row[name]:.4g}" for name in columns))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
