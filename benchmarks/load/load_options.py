"""The arguments that several load programs share: model, request and duration; and the server's settings from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.harness.inputs import BODIES, ROOT


def load_parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser of the shared arguments; the caller sets the default number of rounds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto", help="runtime of the model")
    parser.add_argument(
        "--fake-batch-ms", type=float, default=8.0, help="milliseconds that the fake engine takes for a batch"
    )
    parser.add_argument("--models-dir", type=Path, default=ROOT / "models", help="model repository")
    parser.add_argument("--model", default="photos", help="name of the model")
    parser.add_argument("--cache", type=Path, default=ROOT / "cache", help="folder for compiled engines")
    parser.add_argument("--task", choices=list(BODIES), default="inpaint", help="task of the requests")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument("--output", choices=["jpeg", "png", "webp"], default="jpeg", help="format of the results")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True, help="save the results")
    parser.add_argument("--batch", type=int, default=8, help="largest batch")
    parser.add_argument("--connections", type=int, default=32, help="number of connections")
    parser.add_argument("--clients", type=int, default=1, help="processes of the load generator")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each round")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser


def server_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the server's settings for these arguments, with a queue that refuses nothing."""
    return {
        "engine": options.engine,
        "engine_cache_dir": options.cache,
        "models_dir": options.models_dir,
        f"{options.task}_model": options.model,
        "max_batch_size": options.batch,
        "fake_batch_ms": options.fake_batch_ms,
        "max_queue_size": 4096,
        "log_level": "warning",
    }
