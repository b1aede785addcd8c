"""Checks that every client gets its own replies while others send requests with ambiguous ends (smuggling).

    .venv/bin/python -m benchmarks.requests.boundaries [--exchanges 3000] [--seed 1] [--workers 0 2] [--json FILE]

A server with API keys and the fake engine is tested alone, and behind proxies that pool their connections to it.
Hostile connections, each with one generated exchange (variants.py), send half of their requests without a key; each
honest client, with a key, requests pictures of its own colour. The exit status is 1 if a client got a reply to the
request of another, or if fewer than 99 % of the well-formed requests were answered correctly. --fronts selects some of
the proxies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.inputs import ROOT
from benchmarks.harness.processes import Server, retouch, retouch_is_ready
from benchmarks.requests.owners import Counts, pictures, run
from benchmarks.requests.proxies import PROXIES
from benchmarks.requests.variants import TOO_LARGE, exchanges

ALONE = "alone"
_TCP = Path("/proc/net/tcp")


class Connections:
    """Counts the connections to a port; the kernel lists one side of an ended connection for another minute."""

    def __init__(self, port: int) -> None:
        self._port, self._seen = f"{port:04X}", set[str]()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Connections:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def count(self) -> int:
        return len(self._seen)

    def _watch(self) -> None:
        while not self._end.wait(0.25):
            for line in _TCP.read_text().splitlines()[1:]:
                here, there, state = line.split()[1:4]
                ports = here.split(":")[1], there.split(":")[1]
                if self._port in ports and state != "0A":
                    self._seen.add(ports[0] if ports[1] == self._port else ports[1])


@contextmanager
def served(folder: Path, workers: int) -> Iterator[tuple[Server, dict[str, str]]]:
    """Start a server with the keys of an honest and a hostile client."""
    keys = {}
    for name in ("honest", "hostile"):
        made = [sys.executable, "-m", "retouch", "keys", "create", name, "--file", str(folder / "keys.json")]
        keys[name] = subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    settings = {"keys_file": folder / "keys.json", "workers": workers, "log_level": "error", "model_poll_s": 30}
    settings["max_body_mb"] = TOO_LARGE / 2 / 2**20
    with retouch(folder, fake_batch_ms=2, **settings) as server:
        asyncio.run(server.until_ready(retouch_is_ready))
        yield server, keys


def measure(front: str, workers: int, options: argparse.Namespace) -> tuple[Counts, int]:
    """Return the counts of one proxy, and the number of its connections to the server."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        server, keys = stack.enter_context(served(folder, workers))
        port = server.port
        if front != ALONE:
            proxy = stack.enter_context(PROXIES[front][1](port, folder))
            asyncio.run(proxy.until_ready(retouch_is_ready))
            port = proxy.port
        picture, mask = pictures((1, 2, 3))
        sent = exchanges(options.seed, options.exchanges, keys["hostile"], picture, mask)
        with Connections(server.port) as connections:
            counts = asyncio.run(
                run(sent, port, keys["honest"], pause_s=options.pause, at_once=options.at_once, clients=options.clients)
            )
        return counts, connections.count


def row(front: str, workers: int, counts: Counts, connections: int) -> dict[str, Any]:
    """Return the printed row of one proxy."""
    return {
        "front": front,
        "workers": workers,
        "requests": counts.requests,
        "well_formed": counts.well_formed,
        "answered": counts.answered,
        "sent_again": counts.sent_again,
        "honest": counts.honest,
        "honest_answered": counts.honest_answered,
        "wrong_client": counts.wrong_client,
        "hidden": counts.hidden,
        "surplus": counts.surplus,
        "honest_connections": counts.honest_connections,
        "server_connections": connections,
        "unanswered": dict(counts.kinds.most_common(12)),
    }


def passed(one: dict[str, Any]) -> bool:
    """Return whether the counts meet the bar."""
    right = one["wrong_client"] + one["hidden"] + one["surplus"] == 0
    return right and all(one[part] >= 0.99 * one[whole] for part, whole in _SHARES)


_SHARES = (("answered", "well_formed"), ("honest_answered", "honest"))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=3000, help="hostile connections for each front")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices")
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[0, 2],
        help="numbers of front-end processes; 0: one process does everything",
    )
    parser.add_argument(
        "--fronts",
        nargs="+",
        choices=[ALONE, *PROXIES],
        default=[ALONE, *PROXIES],
        help="what stands in front of the server",
    )
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between the pieces of an exchange")
    parser.add_argument("--at-once", type=int, default=32, help="number of hostile connections at the same time")
    parser.add_argument("--clients", type=int, default=6, help="number of honest clients")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = _parse_options()
    rows = []
    columns = [name for name in row(ALONE, 0, Counts(), 0) if name != "unanswered"]
    print("| " + " | ".join(name.replace("_", " ") for name in columns) + " |\n" + "|---" * len(columns) + "|")
    for workers in options.workers:
        for front in options.fronts:
            if front != ALONE and not PROXIES[front][0]:
                print(f"| {front} | {workers} | is not installed |")
                continue
            rows.append(row(front, workers, *measure(front, workers, options)))
            print("| " + " | ".join(str(rows[-1][name]) for name in columns) + " |", flush=True)
            for kind, number in rows[-1]["unanswered"].items():
                print(f"  not answered {number}×: {kind}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    raise SystemExit(0 if all(map(passed, rows)) else 1)


if __name__ == "__main__":
    main()
