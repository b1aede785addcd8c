"""Counts what killed replicas of Ray behind HAProxy cost: requests lost or cut off, jobs lost or run twice.

    .venv/bin/python -m benchmarks.faults.replica_kills [--kills 60] [--workers 0] [--clients 10] [--json FILE]

Runs two replicas (fake engine) on one Ray node behind HAProxy with docker/ray/haproxy.cfg. In each round clients send
requests in a closed loop over kept connections: of nine, one is a job, four are saved and have an `Idempotency-Key`,
and four are neither. At a random time one replica is killed (SIGKILL), in turn in three ways: `server`, its server's
process alone; `replica`, Ray's process, with which the kernel kills the server; `all`, Ray's process, the server and
all their other processes at once. A round ends when all requests are answered, all jobs have ended, and Ray has started
another replica.

With `--workers` a server is a process and its front ends and engines, which drain when only that process is killed.

Reported: requests answered; refused (429 or 503 with `Retry-After`); cut off within the reply; with no reply, or
another; replies without a request, for another request or with another picture than the others; keys that get another
result when the request is sent again; jobs that did not succeed, were lost, or were recorded twice; and the number of
times that HAProxy sent a request again, without which a kill met no request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.faults.replica_load import JOB, KEYED, PLAIN, Load, kill_processes
from benchmarks.faults.replica_verdict import Round, verdict
from benchmarks.harness.inputs import inpaint_body, write_fake_models
from benchmarks.harness.raw_http import Client
from benchmarks.load import ray_scaling
from tests.serving.backing.haproxy import Proxy, haproxy
from tests.serving.backing.replicas import jobs_in, server_process
from tests.serving.ports import free_port

_SERVER, _REPLICA, _ALL = _KINDS = ("server", "replica", "all")
_NEW_REPLICA_S = 180.0
_AGAIN = 10
"""Keyed requests of a round that are sent again at its end."""


def processes_of(address: str) -> dict[str, list[psutil.Process]]:
    """Return the processes that each kind of kill ends, of the replica whose server listens at an address."""
    server = server_process(address)
    replica = server.parent()
    while replica is not None and not " ".join(replica.cmdline()).startswith("ray::"):  # with front ends
        server, replica = replica, replica.parent()
    assert replica is not None, f"Ray has not started what listens at {address}"
    return {_SERVER: [server], _REPLICA: [replica], _ALL: [replica, *replica.children(recursive=True)]}


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas behind HAProxy, and what clients send to them."""

    proxy: Proxy
    results: Path
    client: Client
    body: Mapping[str, tuple[str, bytes]]
    chance: random.Random
    max_delay_s: float
    """Longest time from the reply that a kill waits for to the kill."""
    digests: set[str] = field(default_factory=set)

    async def kill_one(self, kind: str, requests: int, clients: int) -> Round:
        """Kill a replica under load; returns when there is a new one."""
        victim = self.chance.choice(sorted(self.proxy.ready))
        doomed = processes_of(victim)
        found, retries, recorded = Round(kind), self.proxy.retries, jobs_in(self.results)
        first = self.chance.randint(max(1, requests // 9), max(1, requests // 2))
        load = Load(self.client, self.body, requests, found, self.digests, first)
        killed_at = 0.0

        async def kill() -> None:
            nonlocal killed_at
            await asyncio.sleep(self.chance.uniform(0.0, self.max_delay_s))
            kill_processes(doomed[kind])
            killed_at, found.inside = time.monotonic(), requests - load.left - load.done

        await load.run(clients, kill)
        found.retries = self.proxy.retries - retries
        found.job_ends.update(await asyncio.gather(*map(load.end_of_job, load.jobs)))
        found.compare_jobs(load.jobs, jobs_in(self.results) - recorded)
        for name in self.chance.sample(sorted(load.keys), min(_AGAIN, len(load.keys))):
            reply = await load.send(KEYED, name)
            found.replayed_differently += reply.headers.get("location") != load.keys[name]
        while len(self.proxy.ready) != 2 or victim in self.proxy.ready:
            assert time.monotonic() < killed_at + _NEW_REPLICA_S, "Ray has started no replica in place of the killed"
            await asyncio.sleep(0.1)
        found.new_replica_s = round(time.monotonic() - killed_at, 1)
        (server,) = doomed[_SERVER]
        assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, "the server outlived its kill"
        return found


async def kill_all(options: argparse.Namespace, folder: Path, port: int, proxy: Proxy) -> dict[str, Any]:
    """Kill replicas one after the other; returns the verdict and all rounds."""
    saved = inpaint_body(options.side, format=options.output)
    unsaved = inpaint_body(options.side, format=options.output, save="false")
    client = Client("127.0.0.1", port)
    body = {PLAIN: unsaved, KEYED: saved, JOB: saved}
    fleet = Fleet(proxy, folder / "results", client, body, random.Random(options.seed), options.max_delay_ms * 1e-3)
    rounds: list[Round] = []
    for number in range(options.kills):
        rounds.append(await fleet.kill_one(_KINDS[number % len(_KINDS)], options.requests, options.clients))
        print(f"{number + 1}/{options.kills} {json.dumps(rounds[-1].figures())}", file=sys.stderr, flush=True)
    found = {**verdict(rounds, client.surplus), "rounds": [one.figures() for one in rounds]}
    client.close()
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Start HAProxy, Ray and two replicas, and kill them; returns the verdict."""
    with TemporaryDirectory(prefix="kills", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        write_fake_models(folder / "models", (options.side,))
        settings = {
            "allow_anonymous": True,
            "host": "127.0.0.1",
            "models_dir": folder / "models",
            "results_dir": folder / "results",
            "engine_cache_dir": folder / "cache",
            "engine": "fake",
            "fake_batch_ms": options.fake_batch_ms,
            "workers": options.workers,
            "log_level": "warning",
        }
        proxy = stack.enter_context(haproxy(folder, port))
        os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: the client would leave servers no core
        ray_scaling.start_ray(folder, 0)
        stack.callback(ray_scaling.shut_down)
        ray_scaling.deploy(2, settings, 0.0, folder, proxy.url)
        return asyncio.run(kill_all(options, folder, port, proxy))


def main() -> None:
    """Kill, print and write; the exit status is 1 if a request or a job was lost, or answered twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60, help="number of kills")
    parser.add_argument("--requests", type=int, default=180, help="requests around each kill")
    parser.add_argument("--clients", type=int, default=10, help="maximum number of requests at a time")
    parser.add_argument("--side", type=int, default=64, help="side of the pictures in pixels")
    parser.add_argument("--output", choices=["jpeg", "png", "webp"], default="jpeg", help="format of the results")
    parser.add_argument("--fake-batch-ms", type=float, default=30.0, help="milliseconds of a batch of the fake engine")
    parser.add_argument(
        "--max-delay-ms",
        type=float,
        default=60.0,
        help="longest time from a reply to the kill; 0: while others are sent",
    )
    parser.add_argument("--workers", type=int, default=0, help="front ends of each replica")
    parser.add_argument("--seed", type=int, default=1, help="seed of the choice of victims and times")
    parser.add_argument("--json", type=Path, help="write the figures of all rounds to this file")
    options = parser.parse_args()
    found = run(options)
    print(json.dumps({name: value for name, value in found.items() if name != "rounds"}, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    bad = ("cut_off", "no_or_other_reply", "odd_replies", "answered_twice", "replayed_differently")
    sys.exit(any(found[name] for name in (*bad, "jobs_not_succeeded", "jobs_lost", "jobs_recorded_twice")))


if __name__ == "__main__":
    main()
