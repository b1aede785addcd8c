"""What tells the tries of one request apart from requests: the proxy writes it, the replica reads it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from service.saving.storage.contract import is_result_id

JOB_ID = "x-retouch-job"
"""The header with the id of the job that the request may become."""


def job_id_of(scope: Scope) -> str | None:
    """The id that a request's job is to have; None where nobody gave it one."""
    job_id = Headers(scope=scope).get(JOB_ID)
    return job_id if job_id is not None and is_result_id(job_id) else None
