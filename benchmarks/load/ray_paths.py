"""Compares one replica of Ray behind HAProxy with the server alone, and with another revision's own proxy.

    python -m benchmarks.load.ray_paths --before 5868fe97 --rounds 6 --seconds 4 --side 256 --connections 8

All sides run at once and are loaded alternately, each with a fake engine and one server process. `--before` names a
revision whose benchmarks.load.ray_scaling still starts Ray's own proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.harness.inputs import BODIES, write_fake_models
from benchmarks.harness.processes import retouch, retouch_is_ready
from benchmarks.harness.ratios import print_ratios, ratio_of
from benchmarks.harness.raw_http import encode
from benchmarks.harness.raw_load import Target, drive
from benchmarks.load import ray_scaling
from benchmarks.load.load_options import load_parser
from benchmarks.versions.checkout import environment, source_of
from tests.serving.ports import free_port

_START_S = 180.0
_BEFORE = """
import json, sys
from pathlib import Path
from benchmarks.load import ray_scaling
folder, port, settings = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
ray_scaling.start_ray(folder, port, 0)
ray_scaling.deploy(1, settings, 0.0, f"http://127.0.0.1:{port}")
(folder / "ready").touch()
sys.stdin.read()
ray_scaling.shut_down()
"""


@contextmanager
def behind_haproxy(folder: Path, settings: dict[str, Any]) -> Iterator[int]:
    """Run a replica behind HAProxy in this process; yields the port."""
    port = free_port()
    with ExitStack() as stack:
        proxy = ray_scaling.start_haproxy(folder, port)
        stack.callback(proxy.wait)
        stack.callback(proxy.kill)
        ray_scaling.start_ray(folder, 0)
        stack.callback(ray_scaling.shut_down)
        ray_scaling.deploy(1, settings, 0.0, folder, f"http://127.0.0.1:{port}")
        yield port


@contextmanager
def behind_rays_proxy(revision: str, folder: Path, settings: dict[str, Any]) -> Iterator[int]:
    """Run a replica behind Ray's proxy in a separate process, from an earlier revision; yields the port."""
    port, source = free_port(), source_of(revision, folder)
    environ = {**os.environ, **environment(source)}
    command = [sys.executable, "-c", _BEFORE, str(folder), str(port), json.dumps(settings, default=str)]
    with (folder / "before.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environ, cwd=source, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    try:
        end = time.monotonic() + _START_S
        while not (folder / "ready").exists():
            assert process.poll() is None, (folder / "before.log").read_text()
            assert time.monotonic() < end, "the other revision is not ready"
            time.sleep(0.2)
        yield port
    finally:
        process.communicate(timeout=60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def measure(ports: dict[str, int], request: bytes, options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Load each side once in every round; returns images per second and p50 by side."""
    measured: dict[str, dict[str, list[float]]] = {side: defaultdict(list) for side in ports}
    for number in range(-1, options.rounds):
        for side, port in ports.items():
            answers = drive(Target(port, request, options.connections, options.clients), options.seconds)
            assert set(answers.statuses) == {200}, answers.statuses
            if number >= 0:  # the first is a warm-up
                measured[side]["images/s"].append(answers.per_s)
                measured[side]["p50, ms"].append(answers.percentile_ms(0.5))
                print(json.dumps({side: {name: round(values[-1], 1) for name, values in measured[side].items()}}))
    return measured


def run(options: argparse.Namespace, folder: Path) -> None:
    """Start all sides, measure and print the ratios."""
    settings = {
        "allow_anonymous": True,
        "host": "127.0.0.1",
        "engine": "fake",
        "fake_batch_ms": options.fake_batch_ms,
        "max_batch_size": options.batch,
        "models_dir": folder / "models",
        "save": options.save,
        "codec_threads": 1,
    }
    write_fake_models(folder / "models", (options.side,), options.batch)
    ports: dict[str, int] = {}
    with ExitStack() as stack:
        server = stack.enter_context(retouch(folder, **settings))
        asyncio.run(server.until_ready(retouch_is_ready))
        ports["direct"] = server.port
        if options.before:
            earlier = folder / "before"
            earlier.mkdir()
            own = {**settings, "results_dir": earlier / "results"}
            ports["Ray's proxy"] = stack.enter_context(behind_rays_proxy(options.before, earlier, own))
        ports["HAProxy"] = stack.enter_context(
            behind_haproxy(folder, {**settings, "workers": 0, "results_dir": folder / "of-ray", "drain_delay_s": 0})
        )
        for port in ports.values():
            httpx.get(f"http://127.0.0.1:{port}/readyz").raise_for_status()
        request = encode(f"/v1/{options.task}", *BODIES[options.task](options.side, format=options.output))
        measured = measure(ports, request, options)
    for before in list(ports)[:-1]:
        ratios = {name: ratio_of(measured[before][name], measured["HAProxy"][name]) for name in ("images/s", "p50, ms")}
        print_ratios(f"HAProxy against {before}", (before, "HAProxy"), ratios)


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = load_parser(__doc__)
    parser.set_defaults(fake_batch_ms=10.0, connections=8, rounds=6, seconds=4.0, save=False)
    parser.add_argument("--before", default="", help="a revision with Ray's own proxy, to compare with")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:
        run(parse(), Path(name))


if __name__ == "__main__":
    main()
