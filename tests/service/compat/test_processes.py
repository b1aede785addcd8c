"""Foreign APIs with several processes, and with the command's defaults."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from service.core.settings import FOREIGN_APIS
from tests.service.compat.foreign_requests import GOOD
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.served_process import ServedProcess

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workers", [0, 2])
def test_all_are_on_unless_the_setting_says_otherwise(tmp_path: Path, workers: int) -> None:
    models_dir = write_photos_and_facades(tmp_path / "models")
    with ServedProcess(tmp_path, models_dir=models_dir, workers=workers) as served:
        for good in GOOD:
            reply = httpx.post(f"{served.url}{good.path}", content=good.body, headers=good.headers, timeout=60)
            assert reply.status_code == 200, reply.text
        tags = {tag["name"] for tag in json.loads(httpx.get(f"{served.url}/openapi.json").text)["tags"]}
        assert tags > set(FOREIGN_APIS)
        assert served.terminate() == 0
