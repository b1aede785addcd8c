"""What is known of Ray's replicas behind HAProxy from outside: the processes of their servers, and their jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil

from service.ledger.sqlite_file import LEDGER_FILE


def server_process(address: str) -> psutil.Process:
    """Return the process that listens at an address."""
    port = int(address.rpartition(":")[2])
    listeners = [one for one in psutil.net_connections("tcp4") if one.status == psutil.CONN_LISTEN and one.pid]
    return psutil.Process(next(one.pid for one in listeners if one.laddr and one.laddr.port == port))


def jobs_in(results: Path) -> set[str]:
    """Return the ids of the jobs in the ledger of a results folder."""
    with closing(sqlite3.connect(results / LEDGER_FILE)) as ledger:
        return {job_id for (job_id,) in ledger.execute("SELECT id FROM jobs")}
