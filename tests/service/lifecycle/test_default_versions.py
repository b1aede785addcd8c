"""Default models, for requests that name none, and the log line for those that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.repository.versions import ModelStatus
from service.core.settings import Settings
from service.lifecycle.default_versions import default_versions, unserved_defaults
from tests.serving.fake_models import fake_manifest

STATUSES = [
    ModelStatus("other", 9, "ready", fake_manifest("other", "inpaint")),
    ModelStatus("photos", 1, "available", fake_manifest("photos", "inpaint")),
    ModelStatus("photos", 2, "ready", fake_manifest("photos", "inpaint")),
    ModelStatus("photos", 3, "refused", fake_manifest("photos", "inpaint")),
    ModelStatus("facades", 1, "ready", fake_manifest("facades", "inpaint")),
]


@pytest.mark.parametrize(
    ("named", "found"),
    [
        pytest.param("photos", ["photos/2"], id="the newest that is ready"),
        pytest.param("photos/1", ["photos/1"], id="a version that is loaded when it is asked for"),
        pytest.param("photos/3", [], id="refused"),
        pytest.param("unknown", [], id="not served"),
        pytest.param("", [], id="no default"),
    ],
)
def test_a_request_that_names_no_model_is_answered_by(named: str, found: list[str], tmp_path: Path) -> None:
    settings = Settings(inpaint_model=named, translate_model="facades", models_dir=tmp_path)  # facades has another task
    assert [f"{one.name}/{one.version}" for one in default_versions(settings, STATUSES)] == found


@pytest.mark.parametrize(
    ("settings", "unserved"),
    [
        pytest.param({"inpaint_model": "photo"}, {"inpaint_model": "photo"}, id="misspelt"),
        pytest.param({"inpaint_model": "photos/3"}, {"inpaint_model": "photos/3"}, id="refused"),
        pytest.param({"translate_model": "photos"}, {"translate_model": "photos"}, id="of another task"),
        pytest.param(
            {"inpaint_model": "photos", "translate_model": "facades/1"}, {"translate_model": "facades/1"}, id="set"
        ),
        pytest.param({"inpaint_model": "", "translate_model": ""}, {}, id="none"),
        pytest.param({}, {}, id="served, or of an unused task"),
    ],
)
def test_a_default_model_that_is_not_served_is_known(settings: dict[str, str], unserved: dict[str, str]) -> None:
    assert unserved_defaults(Settings(**settings), STATUSES) == unserved
