"""Versions of the default models, which serve requests that name no model, and defaults that cannot be served. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engines.manifest import Task
from engines.repository.versions import ModelStatus
from service.core.settings import Settings


def default_versions(settings: Settings, statuses: Sequence[ModelStatus]) -> list[ModelStatus]:
    """Return, for each task with a usable default model, the version that serves requests that name no model."""
    found = [_answering(task, reference, statuses) for task, reference in settings.default_models.items()]
    return [status for status in found if status is not None]


def unserved_defaults(settings: Settings, statuses: Sequence[ModelStatus]) -> dict[str, str]:
    """Return the default models without a usable version, by setting: misspelt, refused, or of another task.

    A built-in default counts only if another model of its task is served: a server for inpainting alone needs no model
    for translation.
    """
    served = {status.manifest.task for status in statuses if status.manifest is not None and status.state == "ready"}
    return {
        f"{task}_model": reference
        for task, reference in settings.default_models.items()
        if reference
        and (task in served or reference != Settings.model_fields[f"{task}_model"].default)
        and _answering(task, reference, statuses) is None
    }


def _answering(task: Task, reference: str, statuses: Sequence[ModelStatus]) -> ModelStatus | None:
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
    return max(usable, key=lambda status: status.version, default=None)
