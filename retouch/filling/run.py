"""Makes many pictures concurrently: reads, fills, writes; a failed one is reported and does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from engines.errors import RetouchError
from engines.files.atomic import write_atomically
from retouch.client.options import Task
from retouch.filling.filler import Filler, FillFailed, FillResult
from retouch.filling.jobs import FillJob
from service.lifecycle.daemon_call import call_in_daemon_thread


@dataclass(frozen=True, slots=True)
class FillOutcome:
    """The outcome of one job; `error` is None if the picture was written."""

    job: FillJob
    seconds: float
    result: FillResult | None
    error: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for `--json`."""
        return {
            "image": str(self.job.image) if self.job.image else None,
            "out": str(self.job.out),
            "outs": [str(out) for out in self.job.output_files],
            "seconds": round(self.seconds, 4),
            "error": self.error,
            "model": self.result.model if self.result else None,
            "engine": self.result.engine if self.result else None,
        }


@dataclass(frozen=True, slots=True)
class FillRun:
    """Runs jobs with a filler, at most `concurrency` at once; `done` is called with each outcome."""

    filler: Filler
    task: Task
    options: Mapping[str, str]
    concurrency: int
    now: Callable[[], float]
    done: Callable[[FillOutcome], None]

    async def run(self, jobs: list[FillJob]) -> list[FillOutcome]:
        """Run all jobs; the outcomes are in the order in which they finished."""
        outcomes: list[FillOutcome] = []
        queue = iter(jobs)
        await asyncio.gather(
            *(self._run_jobs_of_queue(queue, outcomes) for _ in range(min(self.concurrency, len(jobs))))
        )
        return outcomes

    async def _run_jobs_of_queue(self, queue: Iterator[FillJob], outcomes: list[FillOutcome]) -> None:
        for job in queue:
            outcome = await self._run_job(job)
            outcomes.append(outcome)
            self.done(outcome)

    async def _run_job(self, job: FillJob) -> FillOutcome:
        begun = self.now()
        try:
            # a pipe or a file of another host may block for ever, and the loop's own threads are waited for
            parts = await call_in_daemon_thread(partial(_read_parts, job), "files")
            result = await self.filler.fill(self.task, parts, {**self.options, "format": job.format})
            if len(result.bodies) != len(job.output_files):
                raise FillFailed(
                    f"{len(result.bodies)} pictures were returned, but {len(job.output_files)} were requested"
                )
            for out, body in zip(job.output_files, result.bodies, strict=True):
                if not (job.keeps and out.exists()):
                    await asyncio.to_thread(_write_file, out, body)
        except RetouchError as error:
            return FillOutcome(job, self.now() - begun, None, str(error))
        return FillOutcome(job, self.now() - begun, result, None)


def _read_parts(job: FillJob) -> dict[str, bytes]:
    files = {"image": job.image, "mask": job.mask, "instance": job.instance, "reference": job.reference}
    try:
        parts = {name: path.read_bytes() for name, path in files.items() if path is not None}
    except OSError as error:
        raise FillFailed(f"{error.filename or job.image} cannot be read ({error.strerror or error})") from error
    if empty := [str(files[name]) for name, data in parts.items() if not data]:
        raise FillFailed(f"{empty[0]} is empty")
    return parts


def _write_file(out: Path, body: bytes) -> None:
    """Write the file atomically: an interrupted run leaves no partial picture.

    An existing file keeps its mode, and a link still leads to its file, whose content is replaced.

    Raises:
        FillFailed: the file cannot be written.
    """
    temporary = out.with_name(f".retouch-{uuid4().hex}.tmp")  # OUT's name with an addition could be too long
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_symlink() and out.exists():
            out.open("r+b").close()  # so that the system's rules about links of other users, as in /tmp, apply
        if out.exists():
            return write_atomically(out, body)
        try:
            temporary.write_bytes(body)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:  # its own text would name the temporary file
        reason = f"{out.parent} is not a folder" if isinstance(error, FileExistsError) else error.strerror or error
        raise FillFailed(f"{out} cannot be written ({reason}); name another -o, or let this user write it") from error
