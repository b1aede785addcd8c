"""Full, read-only and failing disks: checks that every result promised by a reply can be read.

    .venv/bin/python -m benchmarks.faults.disk_faults [--workers 0 2] [--only WORD] [--json FILE]      (as root)

Each kind of fault (disk_fault_kinds.py) is applied to three servers with the fake engine: one that runs until the disk
works again (`room`), one that gets SIGTERM during the fault, and one that gets SIGKILL. At least 10 results are saved
before the fault; 40 more requests, a job and a request with a key are sent during it, and one client sends requests
with `save=false` throughout. After a restart, every result whose `Location` was in a reply is compared with the reply.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CalledProcessError

from benchmarks.faults.disk_fault_kinds import KINDS, FailingFolder
from benchmarks.faults.ledger import unsaved
from benchmarks.harness.inputs import inpaint_body
from benchmarks.harness.processes import Server, retouch, retouch_is_ready
from benchmarks.harness.raw_http import Client, encode

BEFORE, DURING, AT_ONCE = 12, 40, 4
LIMIT_S = 30.0
MIN_DURATION_S = 3.0
ENDS = ("room", "SIGTERM", "SIGKILL")
SAVED = encode("/v1/inpaint", *inpaint_body(128, save="true", format="png"))
LARGE = encode("/v1/inpaint", *inpaint_body(256, save="true", format="png"))
UNSAVED = encode("/v1/inpaint", *inpaint_body(64, save="false"))


@dataclass(slots=True)
class Outcome:
    """The results of one server and its successor."""

    kind: str
    end: str
    workers: int
    promised: dict[str, str] = field(default_factory=dict)
    """Digests of the replies by their `Location`."""
    during: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Replies by status, or by the code of their problem."""
    unsaved: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    job: str = ""
    keyed: str = ""
    unready_s: float | None = None
    ready_again_s: float | None = None
    saving_again_s: float | None = None
    there: int = 0
    there_after_restart: int = 0
    exit_status: int | None = None
    exit_lines: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving(disk: FailingFolder, folder: Path, workers: int) -> Iterator[Server]:
    """Start a server that saves its results on the failing disk."""
    settings = {"results_dir": disk.folder, "workers": workers, "drain_timeout_s": 5, "engine_cache_dir": folder / "c"}
    before = {name: os.environ.get(name) for name in disk.environ or {}}
    os.environ.update(disk.environ or {})
    try:
        with retouch(folder, fake_batch_ms=5.0, log_level="info", **settings) as server:
            for name in before:
                del os.environ[name]
            yield server
    finally:
        for name in before:
            os.environ.pop(name, None)


async def ask(server: Server, request: bytes, outcome: Outcome) -> str:
    """Send one request and record what its reply promised; returns the status or the problem's code."""
    client = server.client()
    try:
        reply = await client.send(request)
    except OSError:
        return "no answer"
    finally:
        client.close()
    if reply.status == 200 and (location := reply.headers.get("location")):
        outcome.promised[location] = hashlib.sha256(reply.body).hexdigest()
    return str(reply.status) if reply.status < 400 else f"{reply.status} {reply.code}"


async def count_readable(server: Server, outcome: Outcome) -> int:
    """Count the promised results that can be read with the bytes of the reply."""
    client, there = server.client(), 0
    for location, digest in outcome.promised.items():
        reply = await client.get(location)
        there += reply.status == 200 and hashlib.sha256(reply.body).hexdigest() == digest
    client.close()
    return there


async def waited_s(server: Server, ready: bool) -> float | None:
    """Return the seconds until /readyz has the wanted state; None if it does not reach it."""
    started, client = time.monotonic(), server.client()
    while time.monotonic() < started + LIMIT_S:
        if await retouch_is_ready(client) == ready:
            client.close()
            return round(time.monotonic() - started, 2)
        await asyncio.sleep(0.05)
    return None


async def wait_until_saved(client: Client) -> None:
    """Wait until no result is waiting to be saved."""
    while await unsaved(client):  # noqa: ASYNC110 -- the state belongs to another process
        await asyncio.sleep(0.05)


async def keep_sending(server: Server, outcome: Outcome) -> None:
    """Run a client that does not save its results."""
    while True:
        outcome.unsaved[await ask(server, UNSAVED, outcome)] += 1
        await asyncio.sleep(0.05)


async def fault(server: Server, disk: FailingFolder, outcome: Outcome) -> None:
    """Save results, inject the fault, and send requests while it lasts."""
    await server.until_ready(retouch_is_ready)
    for _ in range(BEFORE):
        outcome.during[f"before: {await ask(server, SAVED, outcome)}"] += 1
    await asyncio.wait_for(wait_until_saved(server.client()), LIMIT_S)
    disk.begin()
    started = time.monotonic()
    places = asyncio.Semaphore(AT_ONCE)

    async def send_request() -> None:
        async with places:
            outcome.during[await ask(server, LARGE, outcome)] += 1

    await asyncio.gather(*(send_request() for _ in range(DURING)))
    outcome.unready_s = await waited_s(server, ready=False)
    content_type, body = inpaint_body(128, format="png")
    outcome.job = await ask(server, encode("/v1/inpaint", content_type, body, {"Prefer": "respond-async"}), outcome)
    await asyncio.sleep(max(0.0, started + MIN_DURATION_S - time.monotonic()))
    outcome.keyed = await ask(server, encode("/v1/inpaint", content_type, body, {"Idempotency-Key": "k"}), outcome)


async def recovery(server: Server, disk: FailingFolder, outcome: Outcome) -> None:
    """Repair the disk and wait until the server saves again."""
    disk.end()
    started = time.monotonic()
    while await ask(server, SAVED, outcome) != "200" and time.monotonic() < started + LIMIT_S:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    outcome.saving_again_s = round(time.monotonic() - started, 2)
    await waited_s(server, ready=True)
    outcome.ready_again_s = round(time.monotonic() - started, 2)
    for _ in range(5):
        await ask(server, SAVED, outcome)
    outcome.there = await count_readable(server, outcome)


def end_server(server: Server, how: signal.Signals, outcome: Outcome) -> None:
    """End a server with all its processes; records its last log line."""
    if how is signal.SIGKILL:
        os.killpg(server.process.pid, how)
    else:
        server.process.send_signal(how)
    outcome.exit_status = server.process.wait(60)
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line[:1] == "{"]
    wanted = ("results were not saved in time; the next start saves them", "promised results are lost")
    outcome.exit_lines = [json.dumps(line) for line in lines if line.get("event") in wanted]


async def run_server(disk: FailingFolder, folder: Path, outcome: Outcome) -> None:
    """Run one server through the fault, and its successor on a healthy disk."""
    with serving(disk, folder, outcome.workers) as server:
        await server.until_ready(retouch_is_ready)
        sending = asyncio.create_task(keep_sending(server, outcome))
        await fault(server, disk, outcome)
        if outcome.end == "room":
            await recovery(server, disk, outcome)
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
        end_server(server, signal.SIGKILL if outcome.end == "SIGKILL" else signal.SIGTERM, outcome)
    disk.end()
    disk.renew()
    with serving(disk, folder, outcome.workers) as server:
        await server.until_ready(retouch_is_ready)
        outcome.there_after_restart = await count_readable(server, outcome)


def run(kind: str, end: str, workers: int) -> Outcome | None:
    """Run one case; None if this machine does not allow the fault, or the disk cannot be repaired under a server."""
    outcome = Outcome(kind, end, workers)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(KINDS[kind](Path(name, "d")))
        except (CalledProcessError, OSError) as error:
            print(f"{kind}: not on this machine ({error})", file=sys.stderr)
            return None
        if end == "room" and not disk.mends_live:
            return None
        asyncio.run(run_server(disk, Path(name), outcome))
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """Format a table with a line for each server."""
    columns = (
        "disk",
        "processes",
        "ended by",
        "`Location`s given",
        "there after the restart",
        "refused",
        "`save=false`",
    )
    lines = [f"| {' | '.join(columns)} | saving again after, s |", "|---" * 8 + "|"]
    for one in outcomes:
        refused = sum(count for answer, count in one.during.items() if answer == "503 storage_unavailable")
        good, all_ = one.unsaved.get("200", 0), sum(one.unsaved.values())
        again = "" if one.saving_again_s is None else f"{one.saving_again_s}"
        lines.append(
            f"| {one.kind} | {max(1, one.workers)} | {one.end} | {len(one.promised)} | {one.there_after_restart} |"
            f" {refused} of {DURING} | {good} of {all_} | {again} |"
        )
    return "\n".join(lines)


def as_json(outcome: Outcome) -> dict[str, object]:
    """Return the outcome as a JSON object."""
    facts = {name: getattr(outcome, name) for name in outcome.__slots__}
    return {**facts, "promised": len(outcome.promised)}


def main() -> None:
    """Run every fault with every way to end the server."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[0, 2],
        help="numbers of front-end processes; 0: one process does everything",
    )
    parser.add_argument("--only", default="", help="run only the kinds whose name contains this")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    outcomes = []
    for workers in arguments.workers:
        for kind in (kind for kind in KINDS if arguments.only in kind):
            for end in ENDS:
                if (outcome := run(kind, end, workers)) is not None:
                    outcomes.append(outcome)
                    print(json.dumps(as_json(outcome)), file=sys.stderr, flush=True)
    print(table(outcomes))
    if arguments.json:
        arguments.json.write_text(json.dumps([as_json(one) for one in outcomes], indent=1))


if __name__ == "__main__":
    main()
