"""Fault injection: the real service under load, with a record of every client's replies.

    .venv/bin/python -m benchmarks.faults.chaos [--minutes 8] [--workers 2] [--rate 60] [--json FILE] [--plot FILE]

Runs `retouch serve` with the fake engine, saving on; an open loop of clients at a constant rate, each of which repeats
its request with the same `Idempotency-Key` until it has its picture; and one fault after the other, in random order.
Reported: requests lost (never answered 200), answered twice (two replies to one request), hung (neither an answer nor
the end of the connection within a minute); promised results that cannot be read afterwards; keys, of 200 sent again
afterwards, that get another result than before (a full disk cannot keep a key); and the time from each fault to full
speed: to the first second in which at least 90 % of new requests succeed at their first try, with a median latency of
at most three times that before the fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults import faults
from benchmarks.faults.ledger import Asker, Ledger, missing_results, unsaved
from benchmarks.harness.inputs import inpaint_body
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.processes import retouch, retouch_is_ready
from benchmarks.harness.raw_http import encode
from retouch.bench.load import raise_open_file_limit, run_on_uvloop

TRY_TIMEOUT_S = 60.0
RECOVERY_LIMIT_S = 30.0
SAMPLE_S = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a run."""

    seconds: float
    rate_per_s: float
    workers: int = 0
    pause_s: float = 1.0
    """Seconds between a recovery and the next fault."""
    batch_ms: float = 8.0
    seed: int = 1
    only: frozenset[str] = frozenset()
    """Names of the faults; empty: all that this machine allows."""
    warm_up_s: float = 3.0


@dataclass(slots=True)
class Injected:
    """One injected fault and the time of its end."""

    name: str
    at_s: float
    over_s: float
    recovery_s: float | None


@dataclass(slots=True)
class Run:
    """The state of a run."""

    plan: Plan
    target: faults.Target
    asker: Asker
    begun: float
    injected: list[Injected] = field(default_factory=list)
    usual_s: float = 0.0

    async def load(self, until: asyncio.Event) -> None:
        """Start clients at the configured rate until the run ends, then wait until each has its reply."""
        rng, tasks, due = random.Random(self.plan.seed), set(), time.monotonic()
        while not until.is_set():
            due += rng.expovariate(self.plan.rate_per_s)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self.asker.ask())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        while tasks:
            await asyncio.wait(set(tasks))

    async def inject_all(self, chosen: dict[str, faults.Fault]) -> None:
        """Inject the faults one after another, each once before any is repeated."""
        await asyncio.sleep(self.plan.warm_up_s)
        good, end = self.asker.ledger.good_between(self.begun, time.monotonic()), time.monotonic() + RECOVERY_LIMIT_S
        while not good and time.monotonic() < end:  # a busy machine may answer nothing in that time
            await asyncio.sleep(SAMPLE_S)
            good = self.asker.ledger.good_between(self.begun, time.monotonic())
        self.usual_s = statistics.median(good)
        rng, names = random.Random(self.plan.seed), []  # type: ignore[var-annotated]
        while time.monotonic() < self.begun + self.plan.seconds:
            if not names:
                names = sorted(chosen)
                rng.shuffle(names)
            name = names.pop()
            began = time.monotonic()
            await chosen[name](self.target)
            over = time.monotonic()
            recovery_s = await self._recovery(over)
            self.injected.append(Injected(name, began - self.begun, over - self.begun, recovery_s))
            print(f"{name}: recovered after {recovery_s} s", file=sys.stderr, flush=True)
            await asyncio.sleep(self.plan.pause_s)

    async def _recovery(self, over: float) -> float | None:
        """Return the seconds until full speed lasted for one second; None if that took too long."""
        begin = over
        while begin < over + RECOVERY_LIMIT_S:
            await asyncio.sleep(max(0.0, begin + 1.2 + 3 * self.usual_s - time.monotonic()))
            good = self.asker.ledger.good_between(begin, begin + 1.0)
            sent = self.asker.ledger.begun_between(begin, begin + 1.0)
            if good and len(good) >= 0.9 * sent and statistics.median(good) <= 3 * self.usual_s + 0.02:
                return round(begin - over, 2)
            begin += SAMPLE_S
        return None


@contextlib.asynccontextmanager
async def opened(plan: Plan, folder: Path) -> AsyncIterator[Run]:
    """Start the service, its storage and its clients."""
    rclone = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(faults.s3_server(rclone, folder / "s3")) if rclone else None
        disk = stack.enter_context(faults.small_disk(folder / "disk"))
        settings: dict[str, Any] = {"engine_cache_dir": folder / "cache", "hang_timeout_s": 1, "model_poll_s": 0.5}
        settings |= {"workers": plan.workers, "results_dir": (disk or folder) / "results", "body_timeout_s": 10}
        if proxy is not None:
            settings |= {"results_url": "s3://results/chaos", "s3_endpoint": f"http://127.0.0.1:{proxy.port}"}
            settings |= {"upload_timeout_s": 5, "request_timeout_s": 20, "spool_max_items": 2000}
            os.environ |= {"AWS_ACCESS_KEY_ID": "chaos-key", "AWS_SECRET_ACCESS_KEY": "chaos-secret"}
        server = stack.enter_context(retouch(folder, fake_batch_ms=plan.batch_ms, log_level="warning", **settings))
        await server.until_ready(retouch_is_ready)
        client, body = server.client(), inpaint_body(64)
        request = encode("/v1/inpaint", *body)
        target = faults.Target(server, folder, request, random.Random(plan.seed), proxy, disk, plan.workers)
        asker = Asker(lambda: client, "/v1/inpaint", *body, Ledger(), TRY_TIMEOUT_S, 2 * TRY_TIMEOUT_S)
        yield Run(plan, target, asker, time.monotonic())
        client.close()


def choose(run: Run) -> dict[str, faults.Fault]:
    """Return the faults that this machine and this plan allow."""
    chosen = dict(faults.ALWAYS)
    if run.plan.workers:
        chosen |= faults.WITH_PROCESSES
    if run.target.disk is not None:
        chosen |= faults.WITH_DISK
    if run.target.proxy is not None:
        chosen |= faults.WITH_STORAGE
    return {name: fault for name, fault in chosen.items() if not run.plan.only or name in run.plan.only}


async def run_chaos(plan: Plan) -> dict[str, Any]:
    """Run everything; returns the verdict."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        async with opened(plan, Path(name)) as run:
            stop, chosen = asyncio.Event(), choose(run)
            loading = asyncio.create_task(run.load(stop))
            try:
                await run.inject_all(chosen)
            finally:
                stop.set()
            await loading
            return await _verdict(run, chosen)


async def _verdict(run: Run, chosen: dict[str, faults.Fault]) -> dict[str, Any]:
    ledger, client, client_of_load = run.asker.ledger, run.target.client(), run.asker.client()
    answered = [exchange for exchange in ledger.exchanges if exchange.final == 200]
    for exchange in random.Random(run.plan.seed).sample(answered, min(200, len(answered))):
        await run.asker.send_again(exchange)
    end = time.monotonic() + 60
    while await unsaved(client) and time.monotonic() < end:  # noqa: ASYNC110 -- the state belongs to another process
        await asyncio.sleep(0.2)
    missing = await missing_results(ledger, client)
    recoveries = [one.recovery_s for one in run.injected]
    verdict = {
        **ledger.verdict(),
        "answered_twice": client_of_load.surplus,
        "replayed_differently": sum(len(exchange.locations) > 1 for exchange in ledger.exchanges),
        "promised_results_missing": len(missing),
        "faults": len(run.injected),
        "kinds": sorted(chosen),
        "not_injected": sorted({*faults.WITH_PROCESSES, *faults.WITH_DISK, *faults.WITH_STORAGE} - set(chosen)),
        "usual_ms": round(run.usual_s * 1e3, 1),
        "slowest_recovery_s": max((r for r in recoveries if r is not None), default=0.0),
        "never_recovered": sum(r is None for r in recoveries),
        "by_fault": [[one.name, round(one.at_s, 1), one.recovery_s] for one in run.injected],
        "each_second": _each_second(run),
        "details": [*missing[:5], *ledger.odd[:5], *_doubles(run)[:10]],
    }
    client.close()
    return verdict


def _doubles(run: Run) -> list[str]:
    """Describe each reply whose key later gave a different result."""
    found = []
    for exchange in run.asker.ledger.exchanges:
        if len(exchange.locations) > 1:
            at_s = exchange.done_at - run.begun
            faults_then = [one.name for one in run.injected if one.at_s <= at_s <= one.over_s + (one.recovery_s or 9)]
            found.append(f"answered at {at_s:.1f} s during {faults_then}, tries {exchange.tries}")
    return found


def _each_second(run: Run) -> list[int]:
    seconds = int(time.monotonic() - run.begun)
    done = Counter(min(int(e.done_at - run.begun), seconds) for e in run.asker.ledger.exchanges if e.final == 200)
    return [done[second] for second in range(seconds + 1)]


def table(verdicts: dict[str, Any]) -> str:
    """Format the verdicts as Markdown."""
    names = [
        "requests",
        "tries",
        "faults",
        "lost",
        "answered_twice",
        "hung",
        "odd",
        "promised_results_missing",
        "replayed_differently",
    ]
    names += ["usual_ms", "slowest_recovery_s", "never_recovered"]
    lines = [f"| | {' | '.join(verdicts)} |", f"|{'---|' * (len(verdicts) + 1)}"]
    rows = [[name.replace("_", " "), *(str(verdict[name]) for verdict in verdicts.values())] for name in names]
    kinds = sorted({kind for verdict in verdicts.values() for kind in verdict["kinds"]})
    for kind in kinds:
        cells = [_recoveries(verdict, kind) for verdict in verdicts.values()]
        rows.append([f"{kind}: recovery, s", *cells])
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def _recoveries(verdict: dict[str, Any], kind: str) -> str:
    of_kind = [recovery for name, _, recovery in verdict["by_fault"] if name == kind]
    known = [recovery for recovery in of_kind if recovery is not None]
    if not of_kind:
        return "–"
    lost = f", {len(of_kind) - len(known)} never" if len(known) < len(of_kind) else ""
    return f"{max(known, default=0.0)} at most of {len(of_kind)}{lost}"


def draw(verdicts: dict[str, Any], path: Path) -> None:
    """Plot replies per second, with a line at each injected fault."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    figure = Figure(figsize=(11, 2.6 * len(verdicts)), layout="constrained")
    axes = figure.subplots(len(verdicts), 1, squeeze=False)
    for (axis,), (name, verdict) in zip(axes, verdicts.items(), strict=True):
        axis.plot(verdict["each_second"], color="#2a6f97", linewidth=0.9)
        for _, at_s, _ in verdict["by_fault"]:
            axis.axvline(at_s, color="#c1121f", linewidth=0.4, alpha=0.6)
        axis.set_title(f"{name}: answers per second; red: a fault", fontsize=9)
        axis.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)


async def run_all(options: argparse.Namespace) -> dict[str, Any]:
    """Run with one process for half of the time, and with several for the other half."""
    verdicts = {}
    for workers in (0, options.workers) if options.workers else (0,):
        plan = Plan(options.minutes * 60 / (2 if options.workers else 1), options.rate, workers)
        verdicts[f"--workers {workers}"] = await run_chaos(plan)
    return verdicts


def main() -> None:
    """Run, print and write; the exit status is 1 if a request was lost, answered twice or hung."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the run in minutes")
    parser.add_argument(
        "--workers", type=int, default=2, help="front ends of the second half; 0: only runs with one process"
    )
    parser.add_argument("--rate", type=float, default=60.0, help="new requests per second")
    add_output_flags(parser)
    options = parser.parse_args()
    raise_open_file_limit()
    verdicts = run_on_uvloop(run_all(options))
    write_outputs(options, verdicts, draw)
    print(table(verdicts))
    bad = ("lost", "answered_twice", "hung", "odd", "promised_results_missing", "never_recovered")
    sys.exit(any(verdict[name] for verdict in verdicts.values() for name in bad))


if __name__ == "__main__":
    main()
