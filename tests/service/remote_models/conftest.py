"""A bucket of models on a real S3 server, and versions to push there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.repository.listing import VersionKey
from service.remote_models.bucket import ModelBucket
from service.saving.storage.s3 import ObjectLocation, open_object_storage
from tests.serving.fake_models import fake_manifest, write_model
from tests.serving.s3_server import KEY, SECRET, Bucket, serving_bucket

Push = Callable[[int], VersionKey]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Bucket]:
    with serving_bucket(tmp_path) as running:
        yield running


@pytest.fixture
def open_bucket(s3: Bucket) -> Callable[[], ModelBucket]:
    """Open the bucket as one more process."""
    location = ObjectLocation("s3://results/models", f"http://127.0.0.1:{s3.port}", timeout_s=5.0)
    return lambda: ModelBucket(open_object_storage(location))


@pytest.fixture
def bucket(open_bucket: Callable[[], ModelBucket]) -> ModelBucket:
    return open_bucket()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The models folder of whoever exports."""
    return tmp_path / "exported"


def write_version(source: Path, version: int, graph: bytes = b"graph") -> Path:
    """Write a version of `photos` with a graph."""
    directory = write_model(source, fake_manifest("photos", "inpaint", version=version))
    (directory / "model.onnx").write_bytes(graph)
    return directory


@pytest.fixture
def push(open_bucket: Callable[[], ModelBucket], source: Path) -> Push:
    """Push that version of `photos`."""

    def pushed(version: int) -> VersionKey:
        key = VersionKey("photos", version)
        open_bucket().push(key, write_version(source, version))
        return key

    return pushed
