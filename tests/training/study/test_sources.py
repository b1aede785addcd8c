"""The studies' configs have the sizes of the public code."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.config import load_config
from training.study.sources import STUDIES

CONFIGS = Path(__file__).resolve().parents[3] / "training/configs"


@pytest.mark.parametrize("name", STUDIES)
def test_a_studys_config_is_valid_at_its_sizes_and_has_its_phase(name: str) -> None:
    study = STUDIES[name]
    config = load_config(CONFIGS / study.config, study.sizes)
    assert config.model == study.model
    assert study.phase < len(config.phase)
