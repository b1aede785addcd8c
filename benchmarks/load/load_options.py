"""The arguments that several load programs share: model, request and duration; and the server's settings from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.harness.inputs import BODIES, ROOT


def load_parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser of the shared arguments; the caller sets the default number of rounds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--fake-batch-ms", type=float, default=8.0)
    parser.add_argument("--models-dir", type=Path, default=ROOT / "models")
    parser.add_argument("--model", default="photos")
    parser.add_argument("--cache", type=Path, default=ROOT / "cache")
    parser.add_argument("--task", choices=list(BODIES), default="inpaint")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--output", choices=["jpeg", "png", "webp"], default="jpeg")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--batch", type=int, default=8, help="largest batch")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--clients", type=int, default=1, help="processes of the load generator")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
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
