"""Compares training on one GPU and on several: images/s, and the losses of the same global batch.

    python -m benchmarks.training.scaling training/configs/photos.toml:256,512 training/configs/facades.toml:256

    with --set photos:data.path=DIR --set facades:data.path=DIR

Each run is the first phase of a config with a global batch: on one GPU (as many runs at once as there are GPUs); on all
GPUs, with gradients averaged after the backward pass; on one GPU with its share of the batch, which gives an upper
bound; and, with --overlap, on all GPUs with gradients averaged during the backward pass. The speed leaves out the first
quarter of the log's lines, which includes compilation and warm-up. With an empty compiler cache each run takes a minute
or two longer: `--steps 12` fills the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
LOG_EVERY = 20
COLUMNS = ("images_per_s", "of_one", "of_its_share", "mean_loss_difference", "last_quarter_loss", "lines")
Curve = list[dict[str, Any]]


class Run(NamedTuple):
    """A run: its config and global batch."""

    config: Path
    batch: int
    gpus: int = 1
    overlap: bool = False

    @property
    def name(self) -> str:
        return f"{self.config.stem}-{self.batch}-{self.gpus}gpu{'-overlap' if self.overlap else ''}"


@dataclass(frozen=True)
class Plan:
    """The settings that all runs share."""

    folder: Path
    steps: int
    seconds: float
    """Time limit of each run in seconds, including compilation."""
    until: float
    """Time at which all runs are ended, on the monotonic clock."""
    options: Sequence[str]

    def describe(self, run: Run) -> list[Any]:
        """Return the run's entry in the RUNS.json of fit_several.py."""
        config = self.folder / f"{run.config.stem}.toml"
        config.write_text(first_phase(run.config.read_text("utf-8")), "utf-8")
        named = [option.removeprefix(f"{run.config.stem}:") for option in self.options]
        own = [option for option in named if ":" not in option.partition("=")[0]]
        own += [f"output={self.folder / run.name}", f"overlap={str(run.overlap).lower()}", f"log_every={LOG_EVERY}"]
        own += ["sheet_every=1000000", "checkpoint_every=1000000", "sheet_pictures=1", "data.validation_limit=1"]
        own += [f"phase.0.batch={run.batch}", f"phase.0.steps={self.steps}", f"phase.0.warm_up={self.steps // 6}"]
        return [str(config), own, self.seconds]

    def start(self, runs: Sequence[Run], gpu: int | None = None) -> subprocess.Popen[bytes]:
        """Start processes that train the runs one after another: on the GPU with this number, or on all GPUs."""
        listed = self.folder / f"{runs[0].name}.json"
        listed.write_text(json.dumps([self.describe(run) for run in runs]), "utf-8")
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={runs[0].gpus}"]
        environment = os.environ | ({} if gpu is None else only_gpu(gpu, os.environ))
        command = [sys.executable, *launcher, "-m", "benchmarks.training.fit_several", str(listed)]
        return subprocess.Popen(command, cwd=ROOT, env=environment)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for runs to end, and end them at the common limit."""
        try:
            process.wait(max(1, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()

    def curve(self, run: Run) -> Curve:
        """Return the lines of a run's log; none if it failed."""
        log = self.folder / run.name / "log.jsonl"
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
        return [line for line in lines if "images_per_s" in line]


def only_gpu(gpu: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that leaves a process one of the GPUs that are visible in an environment."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[gpu] if visible else str(gpu)}


def first_phase(config: str) -> str:
    """Return the text of a config with its first phase only: later phases would be trained and compiled too."""
    head, *phases = config.split("[[phase]]")
    return "[[phase]]".join([head, *phases[:1]])


def speed(curve: Curve) -> float:
    """Return the median of images per second, without the first quarter of the log's lines."""
    return statistics.median(line["images_per_s"] for line in curve[len(curve) // 4 :])


def figures_of(run: Run, curves: Mapping[Run, Curve]) -> dict[str, float]:
    """Return a run's speed, absolute and relative to one GPU with the same batch and with its share, and its losses."""
    curve, base = curves[run], curves.get(run._replace(gpus=1, overlap=False))
    figures: dict[str, float] = {"lines": len(curve), "images_per_s": speed(curve)}
    share = curves.get(Run(run.config, run.batch // run.gpus))
    if share:
        figures["of_its_share"] = speed(curve) / (run.gpus * speed(share))
    if base:
        shared = min(len(curve), len(base))
        apart = [abs(ours["loss"] - theirs["loss"]) for ours, theirs in zip(curve, base, strict=False)]
        figures |= {"of_one": speed(curve) / speed(base), "mean_loss_difference": statistics.mean(apart)}
        figures["last_quarter_loss"] = statistics.mean(line["loss"] for line in curve[:shared][-max(1, shared // 4) :])
    return figures


def measure(
    plan: Plan, runs: Sequence[Run], gpus: int, report: Callable[[Mapping[Run, Curve]], None], *, overlap: bool
) -> None:
    """Train all runs on one GPU and on several; reports after each part."""
    shares = [run for run in dict.fromkeys(run._replace(batch=run.batch // gpus) for run in runs) if run not in runs]
    together = [run._replace(gpus=gpus) for run in runs]
    stages: list[list[Sequence[Run]]]
    stages = [[runs[lane::gpus] for lane in range(gpus)], [together], [shares[lane::gpus] for lane in range(gpus)]]
    stages += [[[run._replace(overlap=True) for run in together]]] if overlap else []
    done: list[Run] = []
    for stage in stages:
        if time.monotonic() > plan.until:
            break
        started = [plan.start(lane, None if lane[0].gpus > 1 else gpu) for gpu, lane in enumerate(stage) if lane]
        for process in started:
            plan.wait(process)
        done += [run for lane in stage for run in lane]
        report({run: plan.curve(run) for run in done})


def parse_runs(texts: Sequence[str]) -> list[Run]:
    """Parse CONFIG:BATCH,BATCH words into a run for each batch."""
    split = [word.rpartition(":") for word in texts]
    return [Run(Path(config), int(batch)) for config, _, batches in split for batch in batches.split(",")]


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="CONFIG:BATCH,BATCH", help="global batches of a config")
    parser.add_argument("--gpus", type=int, default=2, help="number of GPUs")
    parser.add_argument("--steps", type=int, default=120, help="steps of the config's first phase")
    parser.add_argument(
        "--seconds", type=float, default=60, help="end each run after so many seconds, compilation included"
    )
    parser.add_argument("--limit", type=float, default=3600, help="end everything after so many seconds")
    parser.add_argument("--overlap", action="store_true", help="measure averaging during the backward pass, too")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[NAME:]OPTION=VALUE",
        help="NAME:OPTION=VALUE, an option of the config NAME",
    )
    parser.add_argument("--json", type=Path, help="write figures and curves there")
    return parser.parse_args()


def main() -> None:
    """Train with one GPU and with several, and compare."""
    arguments = parsed()

    def report(curves: Mapping[Run, Curve]) -> None:
        done = {run: curve for run, curve in curves.items() if len(curve) > 1}
        rows = {run: figures_of(run, done) for run in done}
        if arguments.json:
            named = {run.name: {"figures": rows[run], "curve": done[run]} for run in done}
            arguments.json.write_text(json.dumps(named, indent=1) + "\n", "utf-8")
        table = Table("run", *COLUMNS, title="Training on one GPU and on several")
        for run, row in rows.items():
            table.add_row(run.name, *(f"{row[name]:.4g}" if name in row else "" for name in COLUMNS))
        Console(width=140).print(table)

    until = time.monotonic() + arguments.limit
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder), arguments.steps, arguments.seconds, until, arguments.set)
        measure(plan, parse_runs(arguments.runs), arguments.gpus, report, overlap=arguments.overlap)


if __name__ == "__main__":
    main()
