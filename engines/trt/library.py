"""One interface to TensorRT 8.6, 10, 11 and TensorRT-RTX; their differences are handled in this file."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from engines.errors import EngineUnavailable

_KEPT_MESSAGES = 20

_log = structlog.get_logger(__name__)

# without the meta package, the wheels of the library and its bindings have only the modules `*_bindings`
MODULES = ("tensorrt", "tensorrt_bindings", "tensorrt_rtx", "tensorrt_rtx_bindings")


@dataclass(frozen=True, slots=True)
class TensorRt:
    """An installed TensorRT.

    module: its bindings.
    is_rtx: whether it is TensorRT-RTX, which compiles plans to machine code on the GPU that runs them.
    logger: receives the library's log; keeps errors and warnings for error messages.
    """

    module: Any
    is_rtx: bool
    version: tuple[int, ...]
    logger: Any

    @property
    def name(self) -> str:
        """The library's name and version: `TensorRT 8.6.0`, `TensorRT-RTX 1.7.1`."""
        return f"TensorRT{'-RTX' if self.is_rtx else ''} {'.'.join(map(str, self.version))}"

    @property
    def is_strongly_typed(self) -> bool:
        """Whether a network takes every tensor's type from the graph; in 8.6 each layer's type must be set."""
        return hasattr(self._network_flag_names, "STRONGLY_TYPED") or not hasattr(self.module.BuilderFlag, "FP16")

    @property
    def builds_slowly(self) -> bool:
        """Whether each profile takes minutes to build: 8.6 times every layer's kernels and layouts anew for each."""
        return not self.is_strongly_typed

    def network_flags(self) -> int:
        """Return the flags for a network parsed from ONNX; versions with one kind of network have no flag."""
        wanted = "STRONGLY_TYPED" if self.is_strongly_typed else "EXPLICIT_BATCH"
        return 1 << int(getattr(self._network_flag_names, wanted)) if hasattr(self._network_flag_names, wanted) else 0

    @property
    def _network_flag_names(self) -> Any:
        return self.module.NetworkDefinitionCreationFlag

    def take_errors(self) -> list[str]:
        """Return and clear the errors logged since the last call, or else the warnings: 8.6 logs some errors so."""
        message = list(self.logger.errors or self.logger.warnings)
        self.logger.errors.clear()
        self.logger.warnings.clear()
        return message


def load_tensorrt(modules: Sequence[str] = MODULES) -> TensorRt:
    """Import the first TensorRT that is installed.

    Raises:
        EngineUnavailable: none is installed, or none loads; the message says what to install.
    """
    reasons = []
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError, RuntimeError) as error:  # a library that it needs is missing or too old
            reasons.append(f"{name}: {error}")
            continue
        if not hasattr(module, "OnnxParser"):  # the empty package of this name on PyPI
            reasons.append(f"{name} is a stub without the library")
            continue
        return _wrap_module(module)
    found = f" ({'; '.join(reasons)})" if reasons else ""
    raise EngineUnavailable(
        f"TensorRT is not installed{found}; `retouch install-gpu` installs the best one that this host can have"
    )


def _wrap_module(module: Any) -> TensorRt:
    version = tuple(int(part) for part in module.__version__.split(".")[:3] if part.isdigit())
    return TensorRt(module, "rtx" in module.__name__, version, _make_logger(module))


def _make_logger(module: Any) -> Any:
    """Make a logger derived from the library's own base class, which exists only once the library is loaded."""

    class Logger(module.ILogger):  # type: ignore[misc] # the base is only known at run time
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: deque[str] = deque(maxlen=_KEPT_MESSAGES)
            self.warnings: deque[str] = deque(maxlen=_KEPT_MESSAGES)

        def log(self, severity: Any, message: str) -> None:
            levels = module.ILogger.Severity
            if severity in (levels.ERROR, levels.INTERNAL_ERROR):
                self.errors.append(message)
                _log.debug("tensorrt error", message=message)
            elif severity == levels.WARNING:
                self.warnings.append(message)

    return Logger()
