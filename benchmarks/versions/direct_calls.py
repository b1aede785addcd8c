"""Calls the pipeline of one revision without a server; before_and_after.py starts it and sends it commands.

    PYTHONPATH=SOURCE python benchmarks/versions/direct_calls.py MODELS PICTURE BATCH_MS

Each line on standard input is a number of seconds: the pipeline is loaded for this time at concurrency 32, then at 100
calls per second, and the figures are printed as one line of JSON. This file imports only the standard library and the
packages of SOURCE, which may be older than the file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CONCURRENCY, RATE_PER_S = 32, 100.0

Call = Callable[[], Awaitable[bool]]
"""Requests one picture; returns whether it was made."""


async def measure(call: Call, cpu_s: Callable[[], float], seconds: float) -> dict[str, float]:
    """Load in a closed and then in an open loop.

    Returns:
        per_s: pictures per second at concurrency 32; cpu_ms: CPU time per picture; p50_ms and p99_ms: latencies at 100
        calls per second, from the due time; failed: calls without a picture.
    """
    started, cpu = time.perf_counter(), cpu_s()
    done, failed = await closed_loop(call, CONCURRENCY, seconds)
    took, cpu = time.perf_counter() - started, cpu_s() - cpu
    latencies, sent = await open_loop(call, RATE_PER_S, seconds)
    return {
        "per_s": done / took,
        "cpu_ms": cpu * 1e3 / done,
        "p50_ms": percentile_ms(latencies, 0.5),
        "p99_ms": percentile_ms(latencies, 0.99),
        "failed": failed + sent - len(latencies),
    }


async def closed_loop(call: Call, concurrency: int, seconds: float) -> tuple[int, int]:
    """Keep `concurrency` calls in progress; returns how many succeeded and how many failed."""
    end, done, failed = time.perf_counter() + seconds, 0, 0

    async def call_once() -> None:
        nonlocal done, failed
        while time.perf_counter() < end:
            if await call():
                done += 1
            else:
                failed += 1
                await asyncio.sleep(0.01)

    await asyncio.gather(*(call_once() for _ in range(concurrency)))
    return done, failed


async def open_loop(call: Call, rate: float, seconds: float) -> tuple[list[float], int]:
    """Start calls at random times, the same in every run; returns latencies in s, and the number of calls."""
    draw, due, tasks = random.Random(7), 0.0, []
    latencies: list[float] = []
    started = time.perf_counter()

    async def call_once(due: float) -> None:
        if await call():
            latencies.append(time.perf_counter() - started - due)

    while (due := due + draw.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0.0, started + due - time.perf_counter()))
        tasks.append(asyncio.create_task(call_once(due)))
    await asyncio.wait(tasks, timeout=30)
    return latencies, len(tasks)


def percentile_ms(latencies: list[float], share: float) -> float:
    """Return a percentile in milliseconds; NaN if there is none."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 if ordered else float("nan")


def is_todays() -> bool:
    """Return whether the revision has today's folders. Not by `find_spec`, which would find installed packages too."""
    return Path(import_module("service").__path__[0], "core").is_dir()


@asynccontextmanager
async def open_pipeline_of_revision(models: Path, batch_ms: float, picture: bytes) -> AsyncIterator[Call]:
    """Open the pipeline of the revision that is imported.

    Names have moved: the first branch is for today's code, the second for 0.1.
    """
    today = is_todays()
    configure_logs = import_module("service.telemetry.logs" if today else "service.logs").configure_logs
    settings = import_module("service.core.settings" if today else "service.settings").Settings
    schemas = import_module("service.core.schemas" if today else "service.schemas")
    request = import_module("service.core.call" if today else "service.items").Call
    options = schemas.TranslateOptions.model_validate({"format": "jpeg", "save": False})
    with TemporaryDirectory(prefix="retouch-direct-") as folder:
        chosen = settings.model_validate(
            {
                "models_dir": models,
                "results_dir": Path(folder) / "results",
                "engine_cache_dir": Path(folder) / "cache",
                "engine": "fake",
                "fake_batch_ms": batch_ms,
                "save": False,
                "log_level": "warning",
            }
        )
        configure_logs(chosen)
        async with import_module("service.app").open_pipeline(chosen) as pipeline:

            def ask() -> Any:
                now = pipeline.clock()
                call = request("direct", now, now + 60.0)
                if not today:
                    return pipeline.translate(picture, options, call)
                order = import_module("service.core.order").Order("translate", {"image": picture}, options)
                return pipeline.run(order, call)

            async def succeeded() -> bool:
                return bool((await ask()).pictures)

            yield succeeded


async def follow_commands(options: argparse.Namespace) -> None:
    """Warm up, print an empty line, and measure at every line of standard input until it ends."""
    async with open_pipeline_of_revision(options.models, options.batch_ms, options.picture.read_bytes()) as call:
        await closed_loop(call, 16, 1.0)
        print(flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await measure(call, time.process_time, float(line))), flush=True)


def main() -> None:
    """Read the arguments and obey."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="model repository")
    parser.add_argument("picture", type=Path, help="JPEG to translate")
    parser.add_argument("batch_ms", type=float, help="time that the fake engine takes for a batch")
    import_module("uvloop").run(follow_commands(parser.parse_args()))


if __name__ == "__main__":
    main()
