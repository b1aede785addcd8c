"""The installed pasting kernel."""

from __future__ import annotations

import pytest

from service.imaging.pasting.kernel import PastingKernel, installed_kernel
from tests.service.extensions import required


@pytest.fixture(scope="session")
def kernel() -> PastingKernel:
    return required(installed_kernel())
