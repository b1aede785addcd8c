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

KEPT_S = 3600.0
"""How long a finished job can be polled; also the longest that a job without a deadline of its own may take."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of jobs.

    max_unfinished: of all processes together.
    ttl_s: how long a finished job can be polled.
    max_attempts: how often a job is started, runs that were given back not counted.
    """

    max_unfinished: int
    ttl_s: float
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class JobRecords:
    """Tables of jobs that the processes of a ledger share.

    owner: this process.
    kept: the orders of unfinished jobs.
    now: the ledger's clock, in seconds since the epoch, for times that other processes and later starts read.
    promised: waits until any process that is asked for results finds them.
    earlier: the results of runs whose process died.
    """

    ledger: Database
    owner: Owner
    queue: JobQueue
    kept: OrderFiles
    now: Callable[[], float]
    promised: Callable[[list[str]], Awaitable[None]]
    earlier: EarlierRuns


@dataclass(frozen=True, slots=True)
class JobParts:
    """The dependencies of `Jobs`; see `JobRecords`."""

    ledger: Database
    kept: OrderFiles
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
        """Return the model that an order is for, if this process can serve it now."""
        model = self.model_of(order)
        return model if model in self.served() else None

    def refuse_if_too_late_for_model(self, job: Job) -> None:
        """Refuse a job whose deadline passed before a process with its model took it up.

        Raises:
            DeadlineExceeded: so it is.
        """
        if job.seconds_left(self.now()) < 0 and not job.has_model_in(self.served()):
            model = job.facts.get("model") or "that it is for"
            why = f"no server that has the model {model} took up the job before its deadline"
            raise DeadlineExceeded(f"{why}; see whether it is still served, and send the request again")
