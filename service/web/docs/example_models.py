"""Model names for the examples in the documentation, chosen so that the examples work on this server. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engines.manifest import Task
from engines.repository.versions import ModelStatus
from service.core.settings import Settings
from service.imaging.model_inputs import why_not_servable


def example_models(settings: Settings, statuses: Iterable[ModelStatus]) -> dict[Task, str]:
    """Return a model name for each task: the default, or a ready model if the default is not ready; may be empty."""
    defaults = settings.default_models
    ready: dict[str, list[str]] = {task: [] for task in defaults}
    for status in statuses:
        if status.state == "ready" and status.manifest is not None and why_not_servable(status.manifest) is None:
            ready[status.manifest.task].append(status.name)
    return {
        task: default if default in ready[task] or not ready[task] else ready[task][0]
        for task, default in defaults.items()
    }
