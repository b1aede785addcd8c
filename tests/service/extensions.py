"""Access of tests to the libraries that are compiled when Retouch is installed."""

from __future__ import annotations

from typing import TypeVar

import pytest

from service.lifecycle.compiled import HOW_TO_INSTALL

Kernel = TypeVar("Kernel")


def required(kernel: Kernel | None) -> Kernel:
    """Return the kernel; skips the test if it is None, as Retouch was installed without a compiler."""
    if kernel is None:
        pytest.skip(f"the extension is not compiled: {HOW_TO_INSTALL}")
    return kernel
