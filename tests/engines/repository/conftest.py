"""A repository over a folder in which tests publish versions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engines.repository.repository import ModelRepository
from tests.engines.repository.workshop import LATER_S, Workshop


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def repository(tmp_path: Path, workshop: Workshop) -> ModelRepository:
    return ModelRepository(tmp_path / "models", workshop.open, wall_clock=lambda: time.time() + LATER_S)
