"""The child process: takes a job from its input, drops its privileges, reads the foreign file, writes a report."""

from __future__ import annotations

import sys
from collections.abc import Callable

from export.errors import ExportError
from export.foreign.isolation import isolate
from export.foreign.messages import REPORT_FILE, Enforced, Job, Report

STEP = "step "
_MAX_JOB_BYTES = 2**20


def main() -> None:
    """Answer one job. The libraries that read the file are imported after the privileges are dropped."""
    job = Job.model_validate_json(sys.stdin.buffer.read(_MAX_JOB_BYTES))
    enforced = isolate(job.limits, job.scratch, [job.graph.parent, job.pictures])
    report = read_here(job, lambda step: print(STEP + step, flush=True), enforced)  # noqa: T201 -- to the parent
    (job.scratch / REPORT_FILE).write_text(report.model_dump_json(), "utf-8")


def read_here(job: Job, notify: Callable[[str], None], enforced: Enforced) -> Report:
    """Read, wrap and check the graph in this process, under its limits; `notify` is called with each step."""
    try:
        from export.foreign.preparing import import_graph  # noqa: PLC0415 -- onnx and its runtime start threads

        return Report(imported=import_graph(job, notify), enforced=enforced)
    except ExportError as error:
        refused = str(error)
    except MemoryError:
        refused = (
            f"reading or trying the graph takes more than {job.limits.memory_bytes / 2**30:g} GiB of address space; if "
            "you trust the file, allow more with --memory-gib"
        )
    except Exception as error:  # a hostile file can fail anywhere inside the libraries, with any error
        line = " ".join(str(error).split())[:200]
        refused = f"{job.graph.name}: cannot be read as an inpainting graph ({type(error).__name__}: {line})"
    return Report(refused=refused, enforced=enforced)
