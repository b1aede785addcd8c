"""The entry point of the `retouch` command, also where the server's packages are not installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from service.lifecycle.loading import without_collections

_SERVE_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*; extra == .serve.")
"""A requirement of the extra `serve` that has no further condition; the group is the package's name."""

_INTERRUPTED = 130
"""The exit status of a command that SIGINT ended, as shells have it."""

_STANDARD_ERROR = 2
"""The largest descriptor of the standard streams."""


def main() -> None:
    """Run the command line; the entry point of the console script."""
    open_closed_streams()
    # Pydantic's plugins observe validation; to find them it reads the metadata of every installed package, 40 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        with without_collections():
            from retouch.command_line import app  # noqa: PLC0415 -- needs typer

        warnings.formatwarning = _formatted(warnings.formatwarning)
        app()
    except ModuleNotFoundError as error:
        if not (missing := missing_packages(importlib.metadata.requires("retouch") or (), is_installed)):
            raise
        sys.exit(
            f"error: {error}: the command and the server need packages that are not installed ({', '.join(missing)}); "
            "install the extra `serve`: pip install '.[serve]' in the checkout of retouch"
        )
    except KeyboardInterrupt:  # while the libraries are loaded; later typer ends the command with the same status
        sys.exit(_INTERRUPTED)


def open_closed_streams() -> None:
    """Open the null device as each of the standard streams that the parent closed (`2>&-`, some supervisors).

    Otherwise Python has None in place of the stream, and the next file that is opened gets its descriptor: output that
    a library prints would be written into a result.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(_STANDARD_ERROR, "w")


def _formatted(by_default: Callable[..., str]) -> Callable[..., str]:
    """Return a formatter of warnings that omits the line of source code for a FutureWarning, advice on a setting."""

    def formatted(message: Warning | str, category: type[Warning], *where: Any, **line: Any) -> str:
        return f"warning: {message}\n" if category is FutureWarning else by_default(message, category, *where, **line)

    return formatted


def missing_packages(requirements: Iterable[str], is_installed: Callable[[str], bool]) -> list[str]:
    """List the packages of the extra `serve` that are not installed.

    Args:
        requirements: the requirements in this distribution's metadata.
        is_installed: returns whether a distribution is installed.
    """
    names = [found[1] for line in requirements if (found := _SERVE_REQUIREMENT.fullmatch(line))]
    return [name for name in names if not is_installed(name)]


def is_installed(name: str) -> bool:
    """Return whether a distribution of that name is installed."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
