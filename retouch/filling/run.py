"""Makes many pictures at once: reads, fills, writes; one that fails is reported and does not stop the others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.errors import RetouchError
from retouch.client.http_client import ClientError, Filled, Filler, Task
from retouch.filling.plan import FillJob


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job: `error` is None where the picture was written."""

    job: FillJob
    seconds: float
    filled: Filled | None
    error: str | None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "image": str(self.job.image) if self.job.image else None,
            "out": str(self.job.out),
            "outs": [str(out) for out in self.job.outs],
            "seconds": round(self.seconds, 4),
            "error": self.error,
            "model": self.filled.model if self.filled else None,
            "engine": self.filled.engine if self.filled else None,
        }


@dataclass(frozen=True, slots=True)
class FillRun:
    """How jobs are done: by whom, with which options, how many at once; `done` is told of each outcome."""

    filler: Filler
    task: Task
    options: Mapping[str, str]
    concurrency: int
    now: Callable[[], float]
    done: Callable[[Outcome], None]

    async def run(self, jobs: list[FillJob]) -> list[Outcome]:
        """Do all jobs; the outcomes come in the order in which they finished."""
        outcomes: list[Outcome] = []
        queue = iter(jobs)
        await asyncio.gather(*(self._work(queue, outcomes) for _ in range(min(self.concurrency, len(jobs)))))
        return outcomes

    async def _work(self, queue: Iterator[FillJob], outcomes: list[Outcome]) -> None:
        for job in queue:
            outcome = await self._one(job)
            outcomes.append(outcome)
            self.done(outcome)

    async def _one(self, job: FillJob) -> Outcome:
        begun = self.now()
        try:
            parts = await asyncio.to_thread(_read, job)
            filled = await self.filler.fill(self.task, parts, {**self.options, "format": job.format})
            if len(filled.bodies) != len(job.outs):
                raise ClientError(f"{len(filled.bodies)} pictures came back, {len(job.outs)} were asked for")
            for out, body in zip(job.outs, filled.bodies, strict=True):
                await asyncio.to_thread(_write, out, body)
        except (RetouchError, OSError) as error:
            return Outcome(job, self.now() - begun, None, str(error))
        return Outcome(job, self.now() - begun, filled, None)


def _read(job: FillJob) -> dict[str, bytes]:
    files = {"image": job.image, "mask": job.mask, "instance": job.instance, "reference": job.reference}
    return {name: path.read_bytes() for name, path in files.items() if path is not None}


def _write(out: Path, body: bytes) -> None:
    """Put the whole file in place at once: an interrupted run leaves no half picture."""
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(body)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
