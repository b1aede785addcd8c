"""Entry point of the processes that the launcher starts; each reads its assignment from standard input."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.lifecycle.loading import without_collections, without_rich

if TYPE_CHECKING:
    from service.processes.shared.assignment import Assignment


def main() -> int:
    """Run as front end or engine process, and return the exit status."""
    with without_collections(), without_rich():
        import structlog  # noqa: PLC0415 -- without rich, so before anything else that logs

        from service.lifecycle.end_limit import write_stacks_on_request  # noqa: PLC0415
        from service.processes.shared.assignment import (  # noqa: PLC0415
            CodeChanged,
            end_with_launcher,
            read_assignment,
        )
        from service.processes.shared.code_version import code_version  # noqa: PLC0415
        from service.telemetry.logs import configure_logs  # noqa: PLC0415

    try:
        assignment = read_assignment(sys.stdin.buffer.read(), code_version())
    except CodeChanged as error:
        sys.exit(str(error))
    write_stacks_on_request()
    end_with_launcher(assignment.launcher)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure_logs(assignment.settings)
    structlog.contextvars.bind_contextvars(process=f"{assignment.role}-{assignment.index}")
    return _run_front_end(assignment) if assignment.role == "front_end" else _run_engine_process(assignment)


def _run_front_end(assignment: Assignment) -> int:
    with without_collections():
        from service.compat.assembly import foreign_apis, grpc_server_opener  # noqa: PLC0415 -- each role loads its own
        from service.lifecycle.end_requests import EndRequests  # noqa: PLC0415
        from service.processes.front_end.backend import open_remote_backend  # noqa: PLC0415
        from service.processes.shared.assignment import SECOND_REQUEST  # noqa: PLC0415
        from service.web.server import run  # noqa: PLC0415

    listener = socket.socket(fileno=assignment.listener)
    settings = assignment.settings
    backend, apis = partial(open_remote_backend, assignment), foreign_apis(settings.api_names)
    end_requests = EndRequests(second=SECOND_REQUEST)
    return run(settings, backend, listener, apis, grpc_server_opener(settings), end_requests)


def _run_engine_process(assignment: Assignment) -> int:
    with without_collections():
        from service.processes.engine.server import serve  # noqa: PLC0415 -- as above

    try:
        return _run_coroutine(serve(assignment))
    finally:
        if os.getppid() != assignment.launcher:  # the launcher was killed and could not remove the directory
            shutil.rmtree(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).parent, ignore_errors=True)


def _run_coroutine(work: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine, on uvloop if it is installed, as uvicorn does for front ends."""
    try:
        import uvloop  # noqa: PLC0415 -- optional
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    sys.exit(main())
