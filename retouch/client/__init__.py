"""The Python client of a Retouch server; it needs httpx alone. See docs/client.md."""

from retouch.client.async_client import AsyncJob, AsyncRetouch
from retouch.client.results import JobState, Model, Picture, Result, StoredResult
from retouch.client.retrying import RetryPolicy
from retouch.client.sync_client import Job, Retouch

__all__ = [
    "AsyncJob",
    "AsyncRetouch",
    "Job",
    "JobState",
    "Model",
    "Picture",
    "Result",
    "Retouch",
    "RetryPolicy",
    "StoredResult",
]
