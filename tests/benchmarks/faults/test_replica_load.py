"""The clients around a kill: one that fails ends the round, and a process that has already ended no kill."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil
import pytest

from benchmarks.faults.replica_load import JOB, KEYED, PLAIN, Load, kill_processes
from benchmarks.faults.replica_verdict import Round
from benchmarks.harness.raw_http import Client, Reply

_SLEEP = (sys.executable, "-c", "import time; print(flush=True); time.sleep(60)")


class Answering(Client):
    """A client that gets the same reply to each request."""

    def __init__(self, reply: Reply) -> None:
        super().__init__("127.0.0.1", 1)
        self.reply = reply

    async def send(self, request: bytes) -> Reply:
        await asyncio.sleep(0.001)
        return self.reply


def load_of(reply: Reply, requests: int, first: int) -> Load:
    body = dict.fromkeys((PLAIN, KEYED, JOB), ("image/png", b""))
    return Load(Answering(reply), body, requests, Round("server"), set(), first)


async def test_a_round_ends_with_the_error_of_its_clients_if_all_of_them_fail() -> None:
    async def kill() -> None:
        pytest.fail("no reply came")

    load = load_of(Reply(202, {}, b""), 20, 10)  # without a location, which a client needs
    with pytest.raises(KeyError, match="location"):
        await asyncio.wait_for(load.run(4, kill), 10)


async def test_the_kill_comes_after_the_first_replies_and_before_the_last_requests() -> None:
    sent: list[int] = []

    async def kill() -> None:
        sent.append(load.done)

    load = load_of(Reply(200, {"location": "/v1/results/1"}, b"picture"), 40, 10)
    await load.run(4, kill)
    assert load.done == 40
    assert 10 <= sent[0] < 20


@contextmanager
def sleepers(count: int) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    running = [subprocess.Popen(_SLEEP, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for one in running:
            assert one.stdout is not None
            one.stdout.readline()
        yield running
    finally:
        for one in running:
            one.kill()
            one.communicate()


def test_processes_that_end_with_the_first_do_not_stop_the_kill_of_the_others() -> None:
    with sleepers(3) as running:
        found = [psutil.Process(one.pid) for one in running]
        running[1].kill()
        running[1].wait()
        kill_processes(found)
        assert [one.wait(10) for one in running] == [-9, -9, -9]


def test_a_victim_that_has_ended_before_is_an_error() -> None:
    with sleepers(1) as (victim,):
        found = psutil.Process(victim.pid)
        victim.kill()
        victim.wait()
        with pytest.raises(ProcessLookupError):
            kill_processes([found])
