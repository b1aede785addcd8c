"""A whole measurement: a first request that must succeed, a warm-up, then one run for each rate and concurrency."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from engines.errors import RetouchError
from retouch.bench.load import NO_REPLY, LoadGenerator, Observation, Payload, Sender, ServerReply
from retouch.bench.report import RunReport, summarise
from retouch.bench.schedule import poisson_due_times

_WARM_UP_CLIENTS = 4


class BenchFailed(RetouchError):
    """The first request failed, so there is nothing to measure, or a report cannot be written."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The runs of a measurement: first all rates, then all concurrencies."""

    rates_per_s: list[float]
    concurrencies: list[int]
    duration_s: float
    warm_up_s: float
    grace_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The reports of all runs, with the model and engine that answered."""

    plan: BenchPlan
    model: str
    engine: str
    reports: list[RunReport]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for `--json`."""
        reports = [report.as_json() for report in self.reports]
        return {"model": self.model, "engine": self.engine, "plan": asdict(self.plan), "runs": reports}


class ProgressWatcher(Protocol):
    """An object that shows the progress of a measurement."""

    def on_run_begin(self, name: str, duration_s: float) -> None:
        """Note that a run of about that duration begins."""

    def on_reply(self, observation: Observation) -> None:
        """Note that a request is done."""


@dataclass(frozen=True, slots=True)
class Session:
    """A measurement, with its plan, sender, payloads and clock."""

    sender: Sender
    payloads: list[Payload]
    plan: BenchPlan
    watcher: ProgressWatcher
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]

    async def measure(self) -> BenchResult:
        """Run all runs of the plan.

        Raises:
            BenchFailed: the first request was not answered with status 200.
        """
        first = await self.sender.send(self.payloads[0])
        if first.status != 200:
            raise BenchFailed(f"the first request failed, so nothing was measured: {_failure_text(first)}")
        plan = self.plan
        if plan.warm_up_s:
            await self._run_load(
                "warm-up", plan.warm_up_s, lambda loop: loop.closed_loop(_WARM_UP_CLIENTS, plan.warm_up_s)
            )
        reports = [await self._run_open_loop(rate) for rate in plan.rates_per_s]
        reports += [await self._run_closed_loop(clients) for clients in plan.concurrencies]
        return BenchResult(plan, first.model, first.engine, reports)

    async def _run_open_loop(self, rate_per_s: float) -> RunReport:
        rng = random.Random(self.plan.seed)  # noqa: S311 -- arrival times, no secret
        due_times = poisson_due_times(rate_per_s, self.plan.duration_s, rng)
        observation = await self._run_load(
            f"{rate_per_s:g} req/s", self.plan.duration_s, lambda loop: loop.open_loop(due_times)
        )
        return summarise("open", rate_per_s, observation)

    async def _run_closed_loop(self, clients: int) -> RunReport:
        duration_s = self.plan.duration_s
        observation = await self._run_load(
            f"{clients} clients", duration_s, lambda loop: loop.closed_loop(clients, duration_s)
        )
        return summarise("closed", clients, observation)

    async def _run_load(
        self, name: str, duration_s: float, drive: Callable[[LoadGenerator], Coroutine[Any, Any, None]]
    ) -> list[Observation]:
        observation: list[Observation] = []

        def on_reply(one: Observation) -> None:
            observation.append(one)
            self.watcher.on_reply(one)

        self.watcher.on_run_begin(name, duration_s)
        await drive(LoadGenerator(self.sender, self.payloads, self.now, self.sleep, on_reply, self.plan.grace_s))
        return observation


def _failure_text(reply: ServerReply) -> str:
    return reply.detail if reply.status == NO_REPLY else f"{reply.status} {reply.code}: {reply.detail}"
