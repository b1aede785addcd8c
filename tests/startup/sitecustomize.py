"""Run by each Python that a test run with coverage starts: it imports other projects' modules untraced.

Tracing them took a third of the CPU time of a server's start, and coverage reports nothing of them. `tests/conftest.py`
adds this folder to PYTHONPATH; Python imports a module of this name when it starts, after coverage has started.
"""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

OWN = frozenset({"benchmarks", "engines", "export", "retouch", "service", "tests", "training"})


def untrace_foreign_imports() -> None:
    """Suspend the tracer of the thread while a module that is not this project's is executed by an import.

    Those modules import none of this project's, whose lines would be missed.
    """
    execute = SourceFileLoader.exec_module

    def execute_untraced(loader: SourceFileLoader, module: ModuleType) -> None:
        tracer = sys.gettrace()
        if tracer is None or module.__name__.partition(".")[0] in OWN:
            return execute(loader, module)
        sys.settrace(None)
        try:
            return execute(loader, module)
        finally:
            sys.settrace(tracer)

    SourceFileLoader.exec_module = execute_untraced  # type: ignore[method-assign,assignment]


untrace_foreign_imports()
