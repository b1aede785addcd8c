"""Compares Retouch with IOPaint: the same TorchScript file, photographs, masks and API, on one machine.

    benchmarks/peers/install.sh iopaint
    .venv/bin/python -m benchmarks.peers.iopaint_model lama FOLDER
    .venv/bin/python -m benchmarks.peers.iopaint_side_by_side lama FOLDER [--side 256] [--rounds 2] [--json FILE]
        [--requests 2 8 32] [--cell-s 120]

All servers run throughout, started with their usual commands (Retouch does not save, because IOPaint does not). They
get requests in turn, from 1, 8 and 32 clients that each send the next request when the last one is answered. No picture
is sent twice in a run. Figures are over all rounds. Memory is the server's peak proportional set size. Retouch runs
twice: with the precision that it chooses, and with a manifest without `fill_levels`, so that bf16 is allowed. The fills
are compared first. For a busy machine --requests sets fewer requests, and --cell-s abandons those that are unanswered
after so many seconds; `sent` is the number of requests that were sent.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import io
import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from benchmarks.harness.inputs import ROOT
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.processes import Server, retouch, started
from benchmarks.harness.raw_http import Client, Reply, encode
from benchmarks.peers.iopaint_model import NETS
from engines.manifest import MANIFEST_FILE, read_manifest
from retouch.bench.load import run_on_uvloop
from service.imaging.pasting.areas import FEATHER
from tests.serving.ports import free_port

CLIENTS, REQUESTS = (1, 8, 32), (8, 24, 32)
"""Numbers of clients, and of the requests that all of them together send in a round."""
_PHOTOS = ("dress", "skirt", "crocs")
_INTERVAL_S = 0.5


@dataclass
class Measurements:
    """Measurements of one server under one number of clients, over all rounds."""

    latencies_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    sent: int = 0
    refused: int = 0
    peak_mib: float = 0.0

    def figures(self) -> dict[str, float]:
        """Return the figures of a row."""
        ordered = sorted(self.latencies_s)
        return {
            "p50_s": round(statistics.median(ordered), 2) if ordered else math.nan,
            "worst_s": round(ordered[-1], 2) if ordered else math.nan,
            "per_s": round(len(ordered) / self.seconds, 3),
            "sent": self.sent,
            "answered": len(ordered),
            "refused": self.refused,
            "peak_mib": round(self.peak_mib),
        }


def pictures(side: int) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Return photographs and masks of `side`², each with a box and a stroke."""
    made = []
    for number, name in enumerate(_PHOTOS):
        photo = Image.open(ROOT / f"tests/data/{name}.jpg").convert("RGB").resize((side, side))
        mask = Image.new("L", (side, side))
        draw, shift = ImageDraw.Draw(mask), number * side // 10
        draw.rectangle((side // 5 + shift, side // 4, side // 2 + shift, side // 2), fill=255)
        draw.line((side // 8, side * 7 // 8, side * 7 // 8, side * 2 // 3), fill=255, width=side // 12)
        made.append((np.asarray(photo), np.asarray(mask)))
    return made


def request_of(photo: NDArray[np.uint8], mask: NDArray[np.uint8]) -> bytes:
    """Encode a request of IOPaint's API, with PNGs, so that fills can be compared."""
    parts = {}
    for name, pixels in (("image", photo), ("mask", mask)):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        parts[name] = base64.b64encode(buffer.getvalue()).decode()
    return encode("/api/v1/inpaint", "application/json", json.dumps(parts).encode())


async def ask(
    server: Server, requests: Sequence[bytes], clients: int, count: int, cell_s: float, measurements: Measurements
) -> None:
    """Send `count` requests from `clients` clients for at most `cell_s` seconds; records latencies and peak memory."""
    client, numbers = server.client(), iter(range(count))

    async def keep_sending() -> None:
        for number in numbers:
            begun, measurements.sent = time.perf_counter(), measurements.sent + 1
            reply = await client.send(requests[number % len(requests)])
            if reply.status == 200:
                measurements.latencies_s.append(time.perf_counter() - begun)
            else:
                measurements.refused += 1

    async def watch() -> None:
        while True:
            measurements.peak_mib = max(measurements.peak_mib, await asyncio.to_thread(memory_mib, server.process.pid))
            await asyncio.sleep(_INTERVAL_S)

    watching, begun = asyncio.create_task(watch()), time.perf_counter()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(keep_sending() for _ in range(clients))), cell_s)
    measurements.seconds += time.perf_counter() - begun
    watching.cancel()
    client.close()


def memory_mib(pid: int) -> float:
    """Return the proportional set size of a process and its children in MiB."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += each.memory_full_info().pss
    return float(total / 2**20)


@contextlib.contextmanager
def iopaint(net: str, folder: Path, log: Path) -> Iterator[Server]:
    """Run IOPaint with the archive where it keeps its downloads."""
    python, port = ROOT / ".venv-peers/iopaint/bin/python", free_port()
    if not python.exists():
        raise SystemExit("IOPaint is not installed: benchmarks/peers/install.sh iopaint")
    archive = folder / NETS[net].archive
    place = folder / "iopaint/torch/hub/checkpoints" / archive.name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        os.link(archive, place)
    command = [str(python), str(ROOT / "benchmarks/peers/without_cuda.py"), "iopaint", "start", "--model", net]
    command += ["--device", "cpu", "--port", str(port), "--model-dir", str(folder / "iopaint")]
    with started(command, port, log) as server:
        yield server


@contextlib.contextmanager
def start_retouch(net: str, folder: Path, scratch: Path, *, exact: bool = True) -> Iterator[Server]:
    """Run Retouch with the model exported from the archive; unless `exact`, without its `fill_levels`."""
    place = scratch / ("exact" if exact else "fast")
    shutil.copytree(folder / f"models-{net}", place / "models", copy_function=os.link)
    if not exact:
        path = place / "models" / net / "1" / MANIFEST_FILE
        manifest = read_manifest(path.parent)
        path.unlink()  # a hard link: writing to it would change the original
        parity = manifest.parity.model_copy(update={"fill_levels": None})
        path.write_text(manifest.model_copy(update={"parity": parity}).model_dump_json(), "utf-8")
    settings = {"models_dir": place / "models", "inpaint_model": net, "engine_cache_dir": scratch / "cache"}
    with retouch(place, workers="auto", save=False, **settings) as server:
        yield server


async def start(server: Server, request: bytes) -> Reply:
    """Wait until the server answers with a fill, and return that reply."""
    replies: list[Reply] = []

    async def probe(client: Client) -> bool:
        replies.append(await client.send(request))
        return replies[-1].status == 200

    await server.until_ready(probe, timeout_s=300)
    return replies[-1]


async def compare_fills(servers: dict[str, Server], side: int) -> dict[str, dict[str, float]]:
    """Return the largest difference of fills from IOPaint's in levels, and the share of differences above 1."""
    differences: dict[str, list[NDArray[Any]]] = {name: [] for name in servers if name != "IOPaint"}
    for photo, mask in pictures(side):
        fills = {}
        for name, server in servers.items():
            client = server.client()
            reply = await client.send(request_of(photo, mask))
            fills[name] = np.asarray(Image.open(io.BytesIO(reply.body))).astype(int)
            client.close()
        inner = cv2.distanceTransform(mask, cv2.DIST_L2, 5) > FEATHER + 1
        for name, found in differences.items():
            found.append(np.abs(fills[name] - fills["IOPaint"])[inner])
    joined = {name: np.concatenate(found) for name, found in differences.items()}
    return {name: {"most": float(d.max()), "share_above_1": float((d > 1).mean())} for name, d in joined.items()}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start all servers, compare their fills, and ask them in turn."""
    side = options.side or NETS[options.net].side
    shown = pictures(side)
    requests = [request_of(np.roll(photo, n, axis=1), mask) for n in range(11) for photo, mask in shown]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as stack:
        scratch = Path(folder)
        servers = {"IOPaint": stack.enter_context(iopaint(options.net, options.folder, scratch / "iopaint.log"))}
        engines = {"IOPaint": (await start(servers["IOPaint"], requests[0])).headers.get("x-engine")}
        for name, exact in (("Retouch", True), ("Retouch, no promise", False)):
            servers[name] = stack.enter_context(start_retouch(options.net, options.folder, scratch, exact=exact))
            engines[name] = (await start(servers[name], requests[0])).headers.get("x-engine")
        fills = await compare_fills(servers, side)
        idle = {each: round(memory_mib(server.process.pid)) for each, server in servers.items()}
        print(json.dumps({"engines": engines, "fills": fills, "idle_mib": idle}), flush=True)
        measurements = {each: {clients: Measurements() for clients in CLIENTS} for each in servers}
        for number in range(options.rounds):
            order = (
                list(servers) if number % 2 else list(servers)[::-1]
            )  # IOPaint continues to compute abandoned requests
            for clients, count in zip(CLIENTS, options.requests, strict=True):
                for each in order:
                    await ask(servers[each], requests, clients, count, options.cell_s, measurements[each][clients])
                    row = {**measurements[each][clients].figures(), "load": os.getloadavg()[0]}
                    print(number + 1, each, clients, json.dumps(row), flush=True)
    rows = {each: {str(clients): found.figures() for clients, found in of.items()} for each, of in measurements.items()}
    return {"net": options.net, "side": side, "engines": engines, "fills": fills, "idle_mib": idle, "rows": rows}


def table(figures: dict[str, Any]) -> str:
    """Format Markdown."""
    heads = "clients | p50 s | worst s | pictures/s | sent | answered | refused | memory at the peak, MiB"
    lines = [f"| | {heads} |", f"|{'---|' * 9}"]
    for name, of in figures["rows"].items():
        lines += [f"| {name} | {clients} | {' | '.join(map(str, row.values()))} |" for clients, row in of.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=NETS, help="the net")
    parser.add_argument("folder", type=Path, help="folder that benchmarks.peers.iopaint_model wrote")
    parser.add_argument("--side", type=int, help="side of the square photographs; by default the net's own")
    parser.add_argument("--rounds", type=int, default=2, help="number of rounds")
    parser.add_argument(
        "--requests", type=int, nargs=3, default=REQUESTS, help="requests that 1, 8 and 32 clients send in a round"
    )
    parser.add_argument(
        "--cell-s", type=float, default=3600.0, help="longest time in seconds for one server and number of clients"
    )
    add_output_flags(parser)
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    figures = run_on_uvloop(run(options))
    write_outputs(options, figures, lambda *_: None)
    print(table(figures))


if __name__ == "__main__":
    main()
