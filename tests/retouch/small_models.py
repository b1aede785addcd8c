"""Models with small tiles and possibly invalid manifests for the fake engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engines.manifest import MANIFEST_FILE
from tests.serving.fake_models import fake_manifest


def write_model(root: Path, name: str, task: str, version: int = 1, **fields: Any) -> Path:
    """Write only a manifest, with unchecked `fields`; returns the version's directory."""
    size = {"kind": "multiple", "multiple_of": 8, "sides": [16, 32]}
    manifest = fake_manifest(name, task, version=version, size=size).model_dump(mode="json")
    directory = root / name / str(version)
    directory.mkdir(parents=True)
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest | fields))
    return directory
