"""Parts of `Jobs`, and its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from service.admission.admission import Admission
from service.core.call import Call
from service.core.errors import DeadlineExceeded
from service.core.order import Order
from service.jobs.earlier_runs import EarlierRuns
from service.jobs.job_queue import JobQueue
from service.jobs.jobs_table import Job
from service.jobs.request_files import OrderFiles
from service.ledger.contract import Owner, Transaction
from service.ledger.database import Database
from service.saving.local_disk.disk_state import DiskState

RETENTION_S = 3600.0
"""Seconds for which a finished job can be polled; also the time limit of a job without a deadline of its own."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of jobs.

    max_unfinished: limit of unfinished jobs across all processes.
    ttl_s: seconds for which a finished job can be polled.
    max_attempts: limit of a job's runs; runs that were given back do not count.
    """

    max_unfinished: int
    ttl_s: float
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class JobRecords:
    """Records of jobs that all processes of a ledger share.

    owner: this process.
    orders: the orders of unfinished jobs.
    now: the ledger's clock, in seconds since the epoch, for times that other processes and later starts read.
    promised: waits until every process can find the results with these ids.
    earlier: the results of earlier runs that did not end their jobs.
    """

    ledger: Database
    owner: Owner
    queue: JobQueue
    orders: OrderFiles
    now: Callable[[], float]
    promised: Callable[[list[str]], Awaitable[None]]
    earlier: EarlierRuns


@dataclass(frozen=True, slots=True)
class JobParts:
    """The dependencies of `Jobs`; see `JobRecords`."""

    ledger: Database
    orders: OrderFiles
    disk: DiskState
    owner: Owner
    queue: JobQueue
    earlier: EarlierRuns
    admission: Admission
    run: Callable[[Order, Call], Awaitable[list[str]]]
    """Runs an order and returns the URL paths of its results."""
    clock: Callable[[], float]
    """Monotonic clock, in seconds."""
    now: Callable[[], float]
    new_id: Callable[[], str]
    on_finished: Callable[[Transaction, Job], None] = lambda _ledger, _job: None
    """Callback in the transaction that finishes a job."""
    served: Callable[[], Collection[str]] = tuple
    """Returns the models that this process can serve now, each as `name` and as `name/version`."""
    model_of: Callable[[Order], str] = lambda order: order.options.model or ""
    """Returns the model that an order is for, as it names it; empty without one."""

    def model_here(self, order: Order) -> str | None:
        """Return the model that an order is for; None if this process cannot serve it now."""
        model = self.model_of(order)
        return model if model in self.served() else None

    def refuse_if_too_late_for_model(self, job: Job) -> None:
        """Refuse a job whose deadline passed before a process with its model took it up.

        Raises:
            DeadlineExceeded: the deadline passed, and this process does not serve the model either.
        """
        if job.seconds_left(self.now()) < 0 and not job.has_model_in(self.served()):
            model = job.facts.get("model") or "that it is for"
            reason = f"no server with the model {model} started the job before its deadline"
            raise DeadlineExceeded(f"{reason}; check that the model is still served, and send the request again")
