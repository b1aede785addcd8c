"""A whole measurement: a first request that must succeed, a warm-up, then one run for each rate and concurrency."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from engines.errors import RetouchError
from retouch.bench.load import Answer, Loop, Observation, Payload, Sender
from retouch.bench.report import RunReport, summarise
from retouch.bench.schedule import poisson_due_times

_WARM_UP_CLIENTS = 4


class BenchFailed(RetouchError):
    """There is nothing to measure, as the first request failed, or no place for the report."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, in this order."""

    rates_per_s: list[float]
    concurrencies: list[int]
    duration_s: float
    warm_up_s: float
    grace_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and of whom."""

    plan: Plan
    model: str
    engine: str
    reports: list[RunReport]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        reports = [report.as_json() for report in self.reports]
        return {"model": self.model, "engine": self.engine, "plan": asdict(self.plan), "runs": reports}


class Watcher(Protocol):
    """Shows how far it is."""

    def run_begins(self, name: str, duration_s: float) -> None:
        """A run of about that length begins."""

    def observed(self, seen: Observation) -> None:
        """A request is done."""


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that a measurement needs, handed in."""

    sender: Sender
    payloads: list[Payload]
    plan: Plan
    watcher: Watcher
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]

    async def measure(self) -> Measured:
        """Run the plan.

        Raises:
            BenchFailed: the first request was not answered with a picture.
        """
        first = await self.sender.send(self.payloads[0])
        if first.status != 200:
            raise BenchFailed(f"the first request failed, so nothing was measured: {_why(first)}")
        plan = self.plan
        if plan.warm_up_s:
            await self._observe(
                "warm-up", plan.warm_up_s, lambda loop: loop.closed_loop(_WARM_UP_CLIENTS, plan.warm_up_s)
            )
        reports = [await self._open(rate) for rate in plan.rates_per_s]
        reports += [await self._closed(clients) for clients in plan.concurrencies]
        return Measured(plan, first.model, first.engine, reports)

    async def _open(self, rate_per_s: float) -> RunReport:
        rng = random.Random(self.plan.seed)  # noqa: S311 -- arrival times, no secret
        due_times = poisson_due_times(rate_per_s, self.plan.duration_s, rng)
        seen = await self._observe(
            f"{rate_per_s:g} req/s", self.plan.duration_s, lambda loop: loop.open_loop(due_times)
        )
        return summarise("open", rate_per_s, seen)

    async def _closed(self, clients: int) -> RunReport:
        duration_s = self.plan.duration_s
        seen = await self._observe(f"{clients} clients", duration_s, lambda loop: loop.closed_loop(clients, duration_s))
        return summarise("closed", clients, seen)

    async def _observe(
        self, name: str, duration_s: float, drive: Callable[[Loop], Coroutine[Any, Any, None]]
    ) -> list[Observation]:
        seen: list[Observation] = []

        def observed(one: Observation) -> None:
            seen.append(one)
            self.watcher.observed(one)

        self.watcher.run_begins(name, duration_s)
        await drive(Loop(self.sender, self.payloads, self.now, self.sleep, observed, self.plan.grace_s))
        return seen


def _why(answer: Answer) -> str:
    status = str(answer.status) if answer.status else "no reply"
    return f"{status} {answer.code}: {answer.detail or 'is the server running?'}"
