"""Compares the CPU time of a request with `DirectRouting` and with FastAPI's routing, in one process.

    .venv/bin/python -m benchmarks.requests.direct_routing [--rounds 60] [--requests 100] [--side 64]

Two servers run on threads of this process, one of them with FastAPI's routing for the image calls; fake engine, nothing
saved, one connection each. They get requests alternately, in changing order. The CPU time is that of the process, so it
includes the client's, which is the same for both; the difference is that of the routing. Printed: the median of each,
and the mean difference of consecutive rounds without the highest and lowest tenth, with its standard error.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from benchmarks.harness.inputs import inpaint_body, write_fake_models
from benchmarks.harness.server_thread import running_on_thread
from service.core.settings import Settings
from service.telemetry.logs import configure_logs
from service.web import application
from service.web.server import DrainingServer


def without_direct_routing(app: ASGIApp, routes: Iterable[APIRoute]) -> ASGIApp:  # noqa: ARG001 -- in place of `DirectRouting`
    """Return the app unchanged: FastAPI's own routing."""
    return app


def cpu_us(connection: HTTPConnection, content_type: str, body: bytes, requests: int) -> float:
    """Return the CPU time of a request in microseconds."""
    started = time.process_time()
    for _ in range(requests):
        connection.request("POST", "/v1/inpaint", body, {"Content-Type": content_type})
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise SystemExit(f"the request failed: {content[:500]!r}")
    return (time.process_time() - started) / requests * 1e6


def measure(rounds: int, requests: int, side: int) -> dict[str, list[float]]:
    """Return a value for each round: with `DirectRouting`, and with FastAPI's."""
    content_type, body = inpaint_body(side)
    short = application.DirectRouting
    with TemporaryDirectory(prefix="retouch-direct-") as folder:
        models = Path(folder) / "models"
        write_fake_models(models, sides=(64, 256))
        settings = Settings(
            port=0, engine="fake", models_dir=models, results_dir=Path(folder), save=False, log_level="error"
        )
        configure_logs(settings)
        with running_on_thread(DrainingServer(settings)) as with_port:
            application.DirectRouting = without_direct_routing  # type: ignore[assignment]
            try:
                with running_on_thread(DrainingServer(settings)) as without_port:
                    ports = {"with": with_port, "without": without_port}
                    connections = {name: HTTPConnection("127.0.0.1", port) for name, port in ports.items()}
                    time.sleep(1)
                    for connection in connections.values():
                        cpu_us(connection, content_type, body, 3 * requests)
                    times_us: dict[str, list[float]] = {name: [] for name in connections}
                    for number in range(rounds):
                        for name in list(connections)[:: 1 if number % 2 else -1]:
                            times_us[name].append(cpu_us(connections[name], content_type, body, requests))
                    return times_us
            finally:
                application.DirectRouting = short


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="number of rounds")
    parser.add_argument("--requests", type=int, default=100, help="requests to each server in each round")
    parser.add_argument("--side", type=int, default=64, help="side of the picture in pixels")
    options = parser.parse_args()
    times_us = measure(options.rounds, options.requests, options.side)
    differences = sorted(b - a for a, b in zip(times_us["with"], times_us["without"], strict=True))
    out = len(differences) // 10
    kept = differences[out : len(differences) - out]
    for name, values in times_us.items():
        print(f"{name:8} {statistics.median(values):8.1f} us CPU a request, client's included")
    error = statistics.stdev(kept) / len(kept) ** 0.5
    print(f"DirectRouting saves {statistics.fmean(kept):.1f} ± {error:.1f} us of CPU time a request")


if __name__ == "__main__":
    main()
