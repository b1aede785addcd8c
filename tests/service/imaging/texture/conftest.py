"""The installed kernel of the texture stage."""

from __future__ import annotations

import pytest

from service.imaging.texture.patch_match import CompiledKernel, installed_kernel
from tests.service.extensions import required


@pytest.fixture(scope="session")
def kernel() -> CompiledKernel:
    return required(installed_kernel())
