"""A bucket of models on a real S3 server, versions to push to it, and processes that follow it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from engines.repository.listing import VersionKey, list_versions
from service.remote_models.agreement import Agreement, NoAgreement
from service.remote_models.bucket import ModelBucket
from service.remote_models.follower import Follower
from service.remote_models.local_folder import LocalFolder
from service.saving.storage.s3 import ObjectLocation, open_object_storage
from tests.fakes.clock import Clock
from tests.serving.backing.s3_server import KEY, SECRET, Bucket, serving_bucket
from tests.serving.fake_models import fake_manifest, write_model

Push = Callable[[int], VersionKey]
Follow = Callable[..., Follower]


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
    """Open the bucket as another process."""
    location = ObjectLocation("s3://results/models", f"http://127.0.0.1:{s3.port}")
    return lambda: ModelBucket(open_object_storage(location))


@pytest.fixture
def bucket(open_bucket: Callable[[], ModelBucket]) -> ModelBucket:
    return open_bucket()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The models folder from which versions are pushed."""
    return tmp_path / "exported"


def write_version(source: Path, version: int, graph: bytes = b"graph") -> Path:
    """Write a version of `photos` with a graph."""
    directory = write_model(source, fake_manifest("photos", "inpaint", version=version))
    (directory / "model.onnx").write_bytes(graph)
    return directory


@pytest.fixture
def push(open_bucket: Callable[[], ModelBucket], source: Path) -> Push:
    """Push this version of `photos`."""

    def pushed(version: int) -> VersionKey:
        key = VersionKey("photos", version)
        open_bucket().push(key, write_version(source, version))
        return key

    return pushed


class Never:
    """An Agreement in which another host has no version yet, so none is agreed on."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def agreed(self, held: Collection[str]) -> set[str]:
        """Record the held versions; return none."""
        self.told = set(held)
        return set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def follow(open_bucket: Callable[[], ModelBucket], root: Path) -> Follow:
    """Make a process of the host that follows the bucket: `follow(agreement)`."""

    def process(agreement: Agreement | None = None, clock: Clock | None = None) -> Follower:
        return Follower(open_bucket(), LocalFolder(root), agreement or NoAgreement(), clock or Clock())

    return process


def served(root: Path) -> set[int]:
    return {key.version for key in list_versions(root)}
