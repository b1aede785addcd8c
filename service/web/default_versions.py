"""Model versions that answer requests that name no model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engines.repository.versions import ModelStatus
from service.core.settings import Settings


def default_versions(settings: Settings, statuses: Sequence[ModelStatus]) -> list[ModelStatus]:
    """The version of each task's default model that answers requests which name no model, where there is one."""
    found = []
    for task, reference in settings.default_models.items():
        name, _, version = reference.partition("/")
        usable = [
            status
            for status in statuses
            if status.name == name
            and status.state != "refused"
            and (status.version == int(version) if version else status.state == "ready")
            and status.manifest is not None
            and status.manifest.task == task
        ]
        if usable:
            found.append(max(usable, key=lambda status: status.version))
    return found
