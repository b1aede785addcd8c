"""Requests of unfinished jobs on disk, as `.jobs/ID/PART`, so that another process can run them. All methods block."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from engines.manifest import Task
from service.core.errors import NotReady, ServiceError
from service.core.order import Order
from service.core.schemas import OPTIONS
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.own_folders import ORDERS
from service.saving.storage.contract import is_result_id

_ORDER = "order.json"


class OrderFiles(Protocol):
    """Orders by job id, readable by every process that may run the job. All methods block."""

    def keep(self, job_id: str, order: Order) -> None:
        """Write an order, replacing files of a dead process, and wait until it is durable.

        Raises:
            OSError: this host's disk is full or failing; the partial order was removed.
            NotReady: code `storage_unavailable`: the hosts' shared storage cannot be written now.
        """

    def find(self, job_id: str) -> Order:
        """Read the order of a job.

        Raises:
            ServiceError: code `order_lost`: it is missing or damaged; the job cannot be run again.
            NotReady: code `storage_unavailable`: it cannot be read now.
        """

    def older_than(self, moment: float) -> list[str]:
        """Return the ids of jobs with orders last written before `moment` (seconds since the epoch).

        Raises:
            OSError: they cannot be listed now.
        """

    def drop(self, job_id: str) -> None:
        """Remove the order of a finished job; never raises. If that fails now, `older_than` lists the order later."""


class LocalOrderFiles:
    """Orders stored under one directory, by job id."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory / ORDERS
        self._disk = disk or Disk()

    def keep(self, job_id: str, order: Order) -> None:
        """Write an order, replacing files of a dead process, and wait until it is durable.

        Raises:
            OSError: the disk is full or failing; partial files are removed.
        """
        folder = self._folder(job_id)
        about = {"task": order.task, "options": order.options_to_store()}
        parts: Mapping[str, bytes] = {**order.files, _ORDER: json.dumps(about).encode()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)  # orphans are found by the folder's time, which overwriting files would not change
            for name, data in parts.items():
                self._disk.write(folder / name, data)
        except OSError:
            self.drop(job_id)
            raise

    def find(self, job_id: str) -> Order:
        """Read the order of a job.

        Raises:
            ServiceError: code `order_lost`: files are missing or damaged; the job cannot be run again.
            NotReady: code `storage_unavailable`: they cannot be read now.
        """
        folder = self._folder(job_id)
        try:
            about = json.loads((folder / _ORDER).read_bytes())
            task: Task = about["task"]
            files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != _ORDER}
            return Order(task, files, OPTIONS[task].model_validate(about["options"]))
        except (FileNotFoundError, PermissionError, ValueError, KeyError) as error:  # permanent: retrying cannot help
            raise ServiceError(
                "the server restarted, and this job's request is missing or unreadable; send the request again",
                code="order_lost",
            ) from error
        except OSError as error:  # temporary, such as no file descriptor left: an accepted job is not given up for it
            reason = f"a job's request cannot be read now ({error.strerror or error}); try again later"
            raise NotReady(reason, code="storage_unavailable") from error

    def older_than(self, moment: float) -> list[str]:
        """Return the ids of jobs with orders last written before `moment` (seconds since the epoch).

        Raises:
            OSError: the directory cannot be read.
        """
        found = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process has just removed it
                        if is_result_id(entry.name) and entry.stat(follow_symlinks=False).st_mtime < moment:
                            found.append(entry.name)
        except FileNotFoundError:  # no order was ever stored
            return []
        return found

    def drop(self, job_id: str) -> None:
        """Remove the order of a finished job."""
        shutil.rmtree(self._folder(job_id), ignore_errors=True)

    def _folder(self, job_id: str) -> Path:
        if not is_result_id(job_id):
            raise ValueError(f"{job_id!r} is not a job id")
        return self._directory / job_id
