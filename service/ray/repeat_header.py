"""The header by which a replica recognises a repeated request; written by the proxy, read by the replica."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from service.saving.storage.contract import is_result_id

JOB_ID = "x-retouch-job"
"""Header with the id for the job that the request may create."""


def job_id_of(scope: Scope) -> str | None:
    """The job id in a request's header; None if there is no valid one."""
    job_id = Headers(scope=scope).get(JOB_ID)
    return job_id if job_id is not None and is_result_id(job_id) else None
