"""The kernel of the texture stage, as it is installed."""

from __future__ import annotations

import pytest

from service.imaging.texture.patch_match import CompiledKernel, installed_kernel


@pytest.fixture(scope="session")
def kernel() -> CompiledKernel:
    """The installed kernel; skips where Retouch was installed without a compiler."""
    found = installed_kernel()
    if found is None:
        pytest.skip("the texture stage needs its extension: install g++, then Retouch again")
    return found
