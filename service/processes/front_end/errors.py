"""Decodes errors of an engine process to exceptions of the same class, code and text."""

from __future__ import annotations

from engines.errors import EngineUnavailable, ModelNotFound, RetouchError
from service.core.errors import DeadlineExceeded, InferenceFailed, NotReady, Overloaded, ServiceError, ShuttingDown
from service.processes.shared.messages import Failed

_CLASSES: dict[str, type[ServiceError]] = {
    known.__name__: known for known in (DeadlineExceeded, InferenceFailed, NotReady, Overloaded, ShuttingDown)
}


def sample_error(failure: Failed) -> ServiceError:
    """The error of a sample."""
    kind = _CLASSES.get(failure.kind, ServiceError)
    return kind(failure.text, code=failure.code or None, retry_after_s=failure.retry_after_s)


def model_error(failure: Failed) -> RetouchError:
    """The error of a version that cannot be leased."""
    return ModelNotFound(failure.text) if failure.kind == "ModelNotFound" else EngineUnavailable(failure.text)
