"""The compiled kernel of the texture stage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.texture.patch_match import CompiledKernel, build


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of compiled kernels; skips where there is no compiler."""
    if shutil.which("g++") is None:
        pytest.skip("the kernel needs a C++ compiler: apt-get install g++")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def kernel(libraries: Path) -> CompiledKernel:
    return CompiledKernel(build("native", libraries))
