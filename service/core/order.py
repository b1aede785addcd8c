"""What a client asked for, in a form that can be kept: a task, its files, its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.manifest import Task
from service.core.schemas import Options


@dataclass(frozen=True, slots=True)
class Order:
    """One request's content. files: by part name."""

    task: Task
    files: Mapping[str, bytes]
    options: Options
