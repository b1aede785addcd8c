"""Times whole requests with `texture=copied` and without, alternately, over HTTP.

    python -m benchmarks.texture.request_times [--workers 2] [--sizes 256 512] [--rounds 10] [--json FILE]

It starts a server with the shipped `photos`; one client sends one request after the other, and nothing is saved. The
picture is a photograph as JPEG, the masks are strokes and boxes of 5, 30 and 60 % of it. Printed by size and coverage,
as medians over kinds and rounds in ms: requests without texture, requests with texture, and the texture stage alone.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import httpx

from benchmarks.harness.fill_cases import fill_cases
from benchmarks.harness.machine import load_average, machine_facts
from tests.serving.served_process import ServedProcess


def main() -> None:
    """Start the server, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1, help="front-end processes; 0: one process does everything")
    parser.add_argument("--sizes", type=int, nargs="+", default=(256, 512), help="sides of the pictures in pixels")
    parser.add_argument("--rounds", type=int, default=10, help="number of rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    cases = list(fill_cases(options.sizes))
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (
        tempfile.TemporaryDirectory() as folder,
        ServedProcess(Path(folder), engine="auto", workers=options.workers, save=False) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        for number in range(options.rounds + 1):  # the first round is a warm-up
            for cell, photo, mask in cases:
                files = {"image": photo, "mask": mask}
                for texture in ("none", "copied"):
                    timed(client, files, texture, seconds[cell] if number else defaultdict(list))
    print(f"{machine_facts()}, load {load_average()}, workers {options.workers}")
    rows = {cell: {name: round(median(taken) * 1000, 1) for name, taken in by.items()} for cell, by in seconds.items()}
    for cell, row in rows.items():
        print(f"{cell}: {row['none']} ms, with texture {row['copied']} ms, of which the stage {row['stage']} ms")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine_facts(), "ms": rows}, indent=1) + "\n")


def timed(client: httpx.Client, files: dict[str, Any], texture: str, into: dict[str, list[float]]) -> None:
    """Send one request; adds its seconds, and those of its texture stage, to `into`."""
    started = perf_counter()
    reply = client.post("/v1/inpaint", files=files, data={"texture": texture})
    into[texture].append(perf_counter() - started)
    reply.raise_for_status()
    if texture == "copied":
        found = re.search(r"texture;dur=([\d.]+)", reply.headers["Server-Timing"])
        into["stage"].append(float(found[1]) / 1000 if found else 0.0)


if __name__ == "__main__":
    main()
