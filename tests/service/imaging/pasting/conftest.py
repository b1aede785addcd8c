"""The compiled kernel of pasting, as it is installed."""

from __future__ import annotations

import pytest

from service.imaging.pasting.kernel import PastingKernel, installed_kernel


@pytest.fixture(scope="session")
def kernel() -> PastingKernel:
    """The installed kernel; skips where Retouch was installed without a compiler."""
    found = installed_kernel()
    if found is None:
        pytest.skip("compiled pasting needs its extension: install g++, then Retouch again")
    return found
