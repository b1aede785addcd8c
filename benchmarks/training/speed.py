"""Compares training steps on a GPU in plain FP32 with each optimisation, for partial convolution and pix2pix.

    python -m benchmarks.training.speed --photos DIR --facades DIR --features vgg16_pool3.safetensors

A task's variants are compiled at the same time, each in a process of its own; then they train one after another, alone
on the GPU: the same number of steps from the same seed, with steps/s, images/s, peak memory, mean power (NVML) and the
PSNR on held-out pictures at the end.
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

import torch
from rich.console import Console
from rich.table import Table

from training.config import AnyConfig, PConvConfig, Pix2PixConfig
from training.fit import make_trainee
from training.loop.runtime import Runtime, start_runtime
from training.loop.schedule import position_of_step
from training.loop.trainee import Trainee
from training.profiling.sensors import nvml_sensor, read_sensors

VARIANTS = {
    "fp32": {"precision": "fp32", "channels_last": False, "compile": False},
    "tf32": {"precision": "tf32", "channels_last": False, "compile": False},
    "bf16": {"precision": "bf16", "channels_last": False, "compile": False},
    "bf16 nhwc": {"precision": "bf16", "channels_last": True, "compile": False},
    "bf16 nhwc compile": {"precision": "bf16", "channels_last": True, "compile": True},
    "fp16 nhwc compile": {"precision": "fp16", "channels_last": True, "compile": True},
}
TASKS = ("pconv", "pconv-perceptual", "pix2pix")
WARM_UP = 4


def config_of(task: str, variant: str, arguments: argparse.Namespace) -> AnyConfig:
    """Make a config with the benchmark's steps in one phase."""
    shared = {"output": tempfile.gettempdir(), "seed": 5, "ema_decay": 0.99, **VARIANTS[variant]}
    phase = {"steps": WARM_UP + arguments.steps, "warm_up": 20}
    if task == "pix2pix":
        data = {"path": arguments.facades / "train", "validation": arguments.facades / "test", "layout": "pairs"}
        data |= {"direction": "BtoA", "load_side": 286}
        phase |= {"batch": arguments.pix2pix_batch, "learning_rate": 4e-4}
        generator = {"ngf": 64, "dropout": True}
        return Pix2PixConfig.model_validate(
            {**shared, "model": "pix2pix", "generator": generator, "data": data, "phase": [phase]}
        )
    data = {"path": arguments.photos, "layout": "shards" if any(arguments.photos.glob("*.tar")) else "folder"}
    data |= {"validation": arguments.validation, "limit": 500, "threads": 4}
    phase |= {"batch": arguments.batch, "learning_rate": 1e-3}
    phase |= {"perceptual": 0.1, "style": 10.0, "freeze_encoder_norm": True} if task == "pconv-perceptual" else {}
    generator = {"width": arguments.width}
    files = {"features": arguments.features}
    return PConvConfig.model_validate(
        {**shared, **files, "model": "pconv", "generator": generator, "data": data, "phase": [phase]}
    )


def child(arguments: argparse.Namespace) -> None:
    """Warm up, report it, wait for a line, train and print the figures."""
    config = config_of(arguments.task, arguments.variant, arguments)
    began = time.perf_counter()
    with start_runtime(config) as runtime:
        trainee = make_trainee(config, runtime)
        loaded = time.perf_counter()
        trainee.begin_phase(config.phase[0])
        train(trainee, config, range(WARM_UP))
        synchronise(runtime)
        warm = time.perf_counter()
        print("ready", flush=True)
        sys.stdin.readline()
        figures = timed(trainee, config, runtime)
    figures |= {"load_s": loaded - began, "first_steps_s": warm - loaded}
    print(json.dumps({key: round(value, 4) for key, value in figures.items()}), flush=True)


def synchronise(runtime: Runtime) -> None:
    """Wait until the device has finished all work."""
    if runtime.device.type == "cuda":
        torch.cuda.synchronize()


def train(trainee: Trainee[Any], config: AnyConfig, steps: range) -> dict[str, torch.Tensor]:
    """Run these steps; returns the last one's losses."""
    figures: dict[str, torch.Tensor] = {}
    for step in steps:
        figures = trainee.step(step, position_of_step(step, config.phase))
    return figures


def timed(trainee: Trainee[Any], config: AnyConfig, runtime: Runtime) -> dict[str, float]:
    """Time the rest of the phase, until the device has finished all work."""
    total, on_gpu = config.phase[0].steps, runtime.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with read_sensors(nvml_sensor(runtime.device)) as sensors:
        began = time.perf_counter()
        figures = train(trainee, config, range(WARM_UP, total))
        synchronise(runtime)
        seconds = time.perf_counter() - began
    steps = (total - WARM_UP) / seconds
    return {
        "steps_per_s": steps,
        "images_per_s": steps * config.phase[0].batch,
        "peak_memory_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else float("nan"),
        "mean_power_w": sensors.means().get("mean_power_w", float("nan")),
        "loss": float(figures["loss"]),
        **trainee.validate(),
    }


def start(task: str, variant: str) -> subprocess.Popen[str]:
    """Start a child process with this command's own flags."""
    command = [sys.executable, *sys.argv, "--task", task, "--variant", variant]
    # otherwise each compiler would start as many workers as there are cores
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "4", "OMP_NUM_THREADS": "4"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def await_ready(child: subprocess.Popen[str]) -> None:
    """Wait until the child is warm or has failed."""
    assert child.stdout is not None
    child.stdout.readline()


def finish(child: subprocess.Popen[str]) -> dict[str, Any]:
    """Let the child train and read its figures."""
    output, _ = child.communicate("go\n" if child.poll() is None else None)
    return json.loads(output.splitlines()[-1]) if child.returncode == 0 else {"failed": child.returncode}


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of pictures or of tar shards")
    parser.add_argument("--validation", type=Path, required=True, help="folder of held-out pictures")
    parser.add_argument("--facades", type=Path, required=True, help="folder with train and test pairs")
    parser.add_argument("--features", type=Path, required=True, help="VGG16 features (safetensors)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["pconv", "pix2pix"])
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=100, help="timed steps of each variant")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pix2pix-batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=64, help="of the partial-convolution net")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--variant", choices=list(VARIANTS), help=argparse.SUPPRESS)
    return parser.parse_args()


def show(task: str, rows: dict[str, dict[str, Any]]) -> None:
    """Print a table with the speed-up over the first variant."""
    columns = ("steps_per_s", "images_per_s", "peak_memory_gb", "mean_power_w", "validation_psnr_db", "first_steps_s")
    table = Table(title=task)
    for name in ("variant", "speed-up", *columns):
        table.add_column(name)
    base = next(iter(rows.values())).get("images_per_s")
    for variant, row in rows.items():
        gain = f"{row['images_per_s'] / base:.2f}×" if base and "images_per_s" in row else "–"
        table.add_row(variant, gain, *(f"{row[name]:.4g}" if name in row else "failed" for name in columns))
    Console(width=150).print(table)


def main() -> None:
    """Warm up all variants together, then train them one after another."""
    arguments = parsed()
    if arguments.task:
        child(arguments)
        return
    figures: dict[str, dict[str, dict[str, Any]]] = {task: {} for task in arguments.tasks}
    for task, rows in figures.items():
        children = {variant: start(task, variant) for variant in arguments.variants}
        for process in children.values():
            await_ready(process)
        for variant, process in children.items():
            rows[variant] = finish(process)
            print(task, variant, rows[variant], flush=True)
    for task, rows in figures.items():
        show(task, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
