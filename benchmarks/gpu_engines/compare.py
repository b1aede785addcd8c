"""Compares TensorRT, torch.compile, ONNX Runtime and eager torch on one GPU, engine alone, FP16.

    python -m benchmarks.gpu_engines.compare --json FILE [--models models/photos/5 …] [--trt-env /tmp/trt86/env.sh]

The models are the four nets of the reference figures (engine_table.py) with random weights, written by this host's
torch, and the models of `--models`. `--rows big_lama_512 mi_gan_512 … --engines public inductor` compares with the
public nets as they are published (uncompiled, LaMa with torch.fft), in FP32 with torch's defaults and in FP16 by
autocast. Every engine opens every model in a separate process (TensorRT under `--trt-env`, a shell file that sets
PY310). Its output is compared with the public net in FP32 (for `--models` with the model's graph on the CPU). Inputs
are already in the engine's memory; times are medians of five runs of `--run-s` seconds between CUDA events, one batch
after the other. For TensorRT the layers are profiled too. First all engines compile concurrently (TensorRT, which
measures while it builds, after the others); then each is opened again from its cache and measured with exclusive use of
the GPU. With `--steps` and a permanent `--work` the two steps can run hours apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu_engines.engine_jobs import Job
from benchmarks.gpu_engines.engine_table import as_markdown
from benchmarks.gpu_engines.gpu_lock import step_marker

ENGINES = ("eager", "inductor", "onnxrt-cuda", "trt")
PUBLIC = "public"
_ROWS = ("unet_256", "resnet_9blocks", "pconv_256", "pconv_512")
_MORE_ROWS = (
    "big_lama_256",
    "big_lama_512",
    "big_lama_1024",
    "mi_gan_256",
    "mi_gan_512",
    "deepfillv2_256",
    "deepfillv2_512",
)
_UNCOMPILED = ("eager", PUBLIC)


def main() -> None:
    """Publish the models, measure, and print the table."""
    arguments = _arguments()
    arguments.work = arguments.work or tempfile.mkdtemp(prefix="retouch-engines-")
    prepares, measures = ("prepare" in arguments.steps, "measure" in arguments.steps)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        jobs = [job for group in pool.map(lambda model: _jobs(model, arguments), _models(arguments)) for job in group]
        list(pool.map(_prepare, [job for job in jobs if prepares and job.engine not in ("trt", *_UNCOMPILED)]))
    with ThreadPoolExecutor(arguments.trt_at_once) as pool:
        list(pool.map(_prepare, [job for job in jobs if prepares and job.engine == "trt"]))
    with ThreadPoolExecutor(arguments.measure_at_once) as pool:
        list(pool.map(lambda job: _run_apart(job, "measure", job.out), jobs if measures else ()))
    rows = [json.loads(line) for job in jobs if job.out.exists() for line in job.out.read_text().splitlines()]
    arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(as_markdown(rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("engines.json"), help="write the figures to this file")
    parser.add_argument("--work", help="folder for models, caches and plans; by default a temporary one")
    parser.add_argument("--models", nargs="*", default=[], help="directories such as models/photos/5")
    parser.add_argument(
        "--rows", nargs="*", default=list(_ROWS), choices=(*_ROWS, *_MORE_ROWS), help="rows of the table to measure"
    )
    parser.add_argument(
        "--engines", nargs="+", default=list(ENGINES), choices=(*ENGINES, PUBLIC), help="engines to compare"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32], help="batch sizes")
    parser.add_argument(
        "--steps", nargs="+", default=["prepare", "measure"], choices=["prepare", "measure"], help="steps to run"
    )
    parser.add_argument(
        "--trt-env", help="sourced before $PY310 runs the TensorRT jobs; by default this Python runs them"
    )
    parser.add_argument("--trt-level", type=int, default=3, help="TensorRT's builder optimisation level, 0 to 5")
    parser.add_argument("--at-once", type=int, default=4, help="processes that compile")
    parser.add_argument("--trt-at-once", type=int, default=1, help="processes that build for TensorRT")
    parser.add_argument(
        "--measure-at-once", type=int, default=1, help="processes that measure, one at a time on each GPU (gpu_lock.py)"
    )
    parser.add_argument("--run-s", type=float, default=0.5, help="seconds of one of the five runs of a figure")
    parser.add_argument("--seconds", type=float, default=600, help="seconds that one step of one job may take")
    return parser.parse_args()


def _models(arguments: argparse.Namespace) -> list[str]:
    return [*arguments.rows, *arguments.models]


def _jobs(model: str, arguments: argparse.Namespace) -> list[Job]:
    """Make the jobs of a model and publish the model if needed."""
    work = Path(arguments.work)
    if model in (*_ROWS, *_MORE_ROWS):
        directory = work / model / "1"
        if not directory.exists():
            command = [sys.executable, "-m", "benchmarks.gpu_engines.engine_models", model, work]
            subprocess.run(command, check=True, env=_environment())
    else:
        directory = Path(model)
    return [Job(directory, engine, arguments) for engine in arguments.engines]


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _prepare(job: Job) -> None:
    _run_apart(job, "prepare", job.out.with_suffix(".prepared"))


def _run_apart(job: Job, step: str, made: Path) -> None:
    """Run a step in a separate process; its output is kept, and a finished step is not repeated."""
    if made.exists():
        return
    options = job.arguments
    batches = [str(batch) for batch in options.batches]
    command_line = ["-m", "benchmarks.gpu_engines.engine_jobs", str(job.model), job.engine, step]
    command_line += ["--work", str(options.work), "--trt-level", str(options.trt_level), "--run-s", str(options.run_s)]
    command_line += ["--batches", *batches]
    command: Sequence[str] = [sys.executable, *command_line]
    environment = {**_environment(), **step_marker()}
    if job.engine == "trt" and options.trt_env:
        command = ["bash", "-c", f"source {shlex.quote(options.trt_env)}; exec $PY310 {shlex.join(command_line)}"]
        environment = {**os.environ, **step_marker()}
    with job.out.with_suffix(f".{step}.log").open("w") as log:
        try:
            subprocess.run(command, check=False, env=environment, timeout=options.seconds, stdout=log, stderr=log)
        except subprocess.TimeoutExpired:
            job.log_figures(error=f"{step} was not done after {options.seconds:g} s")


if __name__ == "__main__":
    main()
