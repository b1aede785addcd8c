"""Trains several configs one after another in the same processes, which start and connect only once.

    python -m torch.distributed.run --standalone --nproc-per-node=2 -m benchmarks.training.fit_several RUNS.json

RUNS.json lists [CONFIG, [OPTION=VALUE, ...], SECONDS]; all configs must have the same precision and memory layout.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from training.config import load_config
from training.fit import fit
from training.loop.runtime import start_runtime


def main() -> None:
    """Train the configs of the file; a run ends when its seconds are over, and the next begins."""
    runs = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    configs = [(load_config(Path(path), options), seconds) for path, options, seconds in runs]
    with start_runtime(configs[0][0]) as runtime:
        for config, seconds in configs:
            started = time.monotonic()
            try:
                fit(config, replace(runtime, overlaps=config.overlap), seconds)
            except torch.OutOfMemoryError as error:  # every process fails alike; the next run may fit
                print(f"{config.output.name}: {error}", file=sys.stderr)
            if runtime.is_leader:
                print(f"{config.output.name}: {time.monotonic() - started:.0f} s", flush=True)
            gc.collect()
            torch.compiler.reset()
            if runtime.device.type == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
