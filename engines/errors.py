"""The root of every error of this project, and the errors of models and engines.

RetouchError
├── ModelError
│   ├── ManifestInvalid      manifest.json is missing, malformed or of an unknown schema
│   ├── ModelCorrupt         a file of the model is missing or its digest differs from the manifest's
│   ├── ModelNotFound        no such model, version or task is being served
│   └── ParityTooLow         the engine's outputs differ too much from the reference
├── EngineError
│   ├── EngineUnavailable    its library or its device is missing on this host
│   ├── EngineFailed         this batch failed; the engine lives on
│   │   └── EngineOutOfMemory  the device has too little memory; a smaller batch may fit
│   ├── EngineDead           the engine cannot be used again; load a new one
│   │   └── DeviceLost       no engine of this process can use the device again: the process must end
│   └── LoadStopped          a model is not loaded to the end, because the process ends
├── ExportError              see export/errors.py
└── ServiceError             see service/core/errors.py
"""

from __future__ import annotations

import re
from typing import ClassVar


class RetouchError(Exception):
    """Base class of all errors of this project. The message says what is wrong and what to do."""

    exit_status: ClassVar[int] = 1
    """The exit status of a command that this error ends; 2 where the caller's input is at fault, as for bad flags."""


class ModelError(RetouchError):
    """A model on disk cannot be used."""


class ManifestInvalid(ModelError):
    """manifest.json is missing, malformed or of an unknown schema."""


class ModelCorrupt(ModelError):
    """A file of the model is missing or its digest differs from the manifest's."""


class ModelNotFound(ModelError):
    """No such model, version or task is being served."""


class ParityTooLow(ModelError):
    """The engine's outputs differ too much from the reference."""


class EngineError(RetouchError):
    """A runtime cannot do its work."""


class EngineUnavailable(EngineError):
    """The engine's library or device is missing on this host."""


class EngineFailed(EngineError):
    """This batch failed; the engine can be used again."""


class EngineOutOfMemory(EngineFailed):
    """The device has too little memory for this batch; a smaller one may fit."""


class EngineDead(EngineError):
    """The engine cannot be used again; load a new one."""


class DeviceLost(EngineDead):
    """The process has lost the device: no engine in it can use the device again. Only a new process can."""

    engine: str = ""
    """The engine that was opening or running, where that is known."""


class LoadStopped(EngineError):
    """A model is not loaded to the end, because the process ends: no other engine is tried, and none is at fault."""


def one_line(error: Exception) -> str:
    """Return the text of a library's error in one line of at most 300 characters."""
    return re.sub(r"\s+", " ", str(error))[:300]
