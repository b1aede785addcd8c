"""The requests of unfinished jobs on disk, so that another process can run them: `.jobs/ID/PART`. All methods block."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from engines.manifest import Task
from service.core.errors import ServiceError
from service.core.order import Order
from service.core.schemas import OPTIONS
from service.saving.local_disk.disk import Disk
from service.saving.storage.contract import is_result_id

_ORDER = "order.json"


class KeptOrders:
    """Orders by the id of their job, under one directory."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory / ".jobs"
        self._disk = disk or Disk()

    def keep(self, job_id: str, order: Order) -> None:
        """Write an order down, over what a process left that died doing so, and wait until it is on the device.

        Raises:
            OSError: the disk is full or failing; nothing is left of it.
        """
        folder = self._folder(job_id)
        about = {"task": order.task, "options": order.options.model_dump(mode="json", exclude_none=True)}
        parts: Mapping[str, bytes] = {**order.files, _ORDER: json.dumps(about).encode()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)  # writing over files leaves it as old as it was, which is what orphans are known by
            for name, data in parts.items():
                self._disk.write(folder / name, data)
        except OSError:
            self.drop(job_id)
            raise

    def find(self, job_id: str) -> Order:
        """The order of a job.

        Raises:
            ServiceError: code `order_lost`: it is not there whole; the job cannot be run again.
        """
        folder = self._folder(job_id)
        try:
            about = json.loads((folder / _ORDER).read_bytes())
            task: Task = about["task"]
            files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != _ORDER}
            return Order(task, files, OPTIONS[task].model_validate(about["options"]))
        except (OSError, ValueError, KeyError) as error:
            raise ServiceError(
                "the server restarted and what this job was sent is not there any more; send it again",
                code="order_lost",
            ) from error

    def older_than(self, moment: float) -> list[str]:
        """The jobs whose orders were last written to before then (seconds since the epoch).

        Raises:
            OSError: the directory cannot be read.
        """
        found = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # another process has just dropped it
                        if is_result_id(entry.name) and entry.stat(follow_symlinks=False).st_mtime < moment:
                            found.append(entry.name)
        except FileNotFoundError:  # no job yet
            return []
        return found

    def drop(self, job_id: str) -> None:
        """Its job is finished."""
        shutil.rmtree(self._folder(job_id), ignore_errors=True)

    def _folder(self, job_id: str) -> Path:
        if not is_result_id(job_id):
            raise ValueError(f"{job_id!r} is no job id")
        return self._directory / job_id
