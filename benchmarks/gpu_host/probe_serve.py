"""Probes a server that was just started: records /readyz until it is ready, then some fills and their engines.

    python -m benchmarks.gpu_host.probe_serve probe PORT FOLDER NAME PID      # PID: that of the server
    python -m benchmarks.gpu_host.probe_serve compare FOLDER

`ask` writes FOLDER/NAME.json and NAME-*.png; `compare` compares every NAME-*.png with serve_cpu-*.png.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from benchmarks.harness.inputs import photo_and_mask

_SIDES = (256, 512, 1000)
_HEADERS = ("x-engine", "x-batch-size", "x-model", "server-timing")


def probe(port: int, folder: Path, name: str, server: int) -> None:
    """Wait until the server is ready, and request fills: FOLDER/NAME.json, and NAME-SIDE.png for each side.

    Raises:
        ProcessLookupError: the server's process ended before the server was ready.
    """
    facts: dict[str, Any] = {"readyz": [], "replies": []}
    file = folder / f"{name}.json"
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for answer in _answers_until_ready(client, server):
            facts["readyz"].append(answer)
            file.write_text(json.dumps(facts, indent=1))
        for side in (*_SIDES, 512, 512, 512):
            facts["replies"].append(_request_fill(client, side, folder / f"{name}-{side}.png"))
        facts["models"] = client.get("/v1/models").text[:4000]
    file.write_text(json.dumps(facts, indent=1))
    print(json.dumps(facts["replies"], indent=1))


def _answers_until_ready(client: httpx.Client, server: int) -> Iterator[tuple[float, str]]:
    """Poll /readyz until it is 200; yields seconds and answer whenever the answer changes."""
    started, last = time.monotonic(), ""
    while True:
        try:
            reply = client.get("/readyz")
            answer, ready = f"{reply.status_code} {reply.text[:600]}", reply.status_code == 200
        except httpx.HTTPError as error:
            answer, ready = type(error).__name__, False
        if answer != last:
            yield round(time.monotonic() - started, 2), answer
            last = answer
        if ready:
            return
        os.kill(server, 0)  # raises if the process has ended
        time.sleep(0.1)


def _request_fill(client: httpx.Client, side: int, result: Path) -> dict[str, Any]:
    """Request a fill of `side`² pixels and write it to `result`; returns the facts about the reply."""
    photo, mask = photo_and_mask(side)
    sent = time.monotonic()
    reply = client.post(
        "/v1/inpaint",
        files={"image": ("photo.jpg", photo, "image/jpeg"), "mask": ("mask.png", mask, "image/png")},
        data={"save": "false"},
    )
    took_ms = round((time.monotonic() - sent) * 1e3, 1)
    if reply.status_code == 200:
        result.write_bytes(reply.content)
    headers = {header: reply.headers.get(header) for header in _HEADERS}
    problem = reply.text[:400] if reply.status_code != 200 else ""
    return {"side": side, "status": reply.status_code, "ms": took_ms, **headers, "problem": problem}


def compare(folder: Path) -> None:
    """Print the difference of each picture from the one that was computed on the CPU."""
    for side in _SIDES:
        wanted = np.asarray(Image.open(folder / f"serve_cpu-{side}.png"), np.int16)
        hole = np.asarray(Image.open(io.BytesIO(photo_and_mask(side)[1]))) > 0
        for path in sorted(folder.glob(f"*-{side}.png")):
            apart = np.abs(np.asarray(Image.open(path), np.int16) - wanted)
            inside = float(np.mean(np.square(apart[hole], dtype=np.float64))) / 255**2
            psnr = -10 * np.log10(max(inside, 1e-12))
            print(
                f"{path.name}: in the hole {psnr:.1f} dB, at most {apart[hole].max()}; "
                f"outside at most {apart[~hole].max()}"
            )


if __name__ == "__main__":
    if sys.argv[1] == "probe":
        probe(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    else:
        compare(Path(sys.argv[2]))
