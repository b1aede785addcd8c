"""A version in the bucket is either whole and verified or absent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from engines.errors import ManifestInvalid
from engines.repository.listing import VersionKey
from service.remote_models.bucket import FILES_FILE, ModelBucket, RemoteVersion, VersionRefused, read_files
from tests.service.remote_models.conftest import Push, write_version
from tests.serving.backing.s3_server import Bucket

KEY = VersionKey("photos", 1)
LARGE = bytes(range(256)) * (36 * 2**12)
"""36 MiB, which are sent in several parts and fetched in several ranges."""


def version_of(bucket: ModelBucket) -> RemoteVersion:
    version = bucket.versions()[KEY]
    assert version is not None
    return version


def test_a_version_comes_back_as_it_was_pushed(bucket: ModelBucket, source: Path, tmp_path: Path) -> None:
    assert bucket.versions() == {}
    directory = write_version(source, 1, LARGE)
    pushed = bucket.push(KEY, directory)
    assert version_of(bucket) == pushed
    bucket.fetch(pushed, tmp_path / "fetched")
    for path in directory.iterdir():
        assert (tmp_path / "fetched" / path.name).read_bytes() == path.read_bytes()
    assert read_files(KEY, (tmp_path / "fetched" / FILES_FILE).read_bytes()) == pushed


def test_a_version_never_changes(bucket: ModelBucket, source: Path) -> None:
    bucket.push(KEY, write_version(source, 1))
    bucket.push(KEY, source / "photos/1")
    with pytest.raises(VersionRefused, match="as the next version"):
        bucket.push(KEY, write_version(source, 1, b"another graph"))


@pytest.mark.parametrize("content", [b"grabh", b"gra", b"graph and more", None])
def test_what_differs_from_what_was_pushed_is_refused(
    bucket: ModelBucket, push: Push, tmp_path: Path, content: bytes | None
) -> None:
    push(1)
    bucket.objects.delete("photos/1/model.onnx")
    if content is not None:
        bucket.objects.put("photos/1/model.onnx", content, "application/octet-stream")
    with pytest.raises(VersionRefused, match=r"photos/1/model.onnx in the bucket"):
        bucket.fetch(version_of(bucket), tmp_path / "fetched")


def test_a_version_is_there_once_its_last_object_is_and_gone_with_the_first(
    bucket: ModelBucket, push: Push, s3: Bucket
) -> None:
    push(1)
    content = version_of(bucket).content
    bucket.objects.delete(f"photos/1/{FILES_FILE}")
    assert bucket.versions() == {}
    bucket.objects.put(f"photos/1/{FILES_FILE}", content, "application/json")
    assert set(bucket.versions()) == {KEY}
    assert bucket.withdraw(KEY)
    assert s3.names == set()
    assert not bucket.withdraw(KEY)


@pytest.mark.parametrize("name", ["../photos", "a/b", ".hidden", "", FILES_FILE, "/etc/passwd"])
def test_a_name_that_is_no_plain_file_makes_the_description_damaged(name: str) -> None:
    facts = {"size": 1, "sha256": "0" * 64}
    assert read_files(KEY, json.dumps({"files": {name: facts}}).encode()) is None
    assert read_files(KEY, json.dumps({"files": {"model.onnx": facts}}).encode()) is not None
    assert read_files(KEY, b"{") is None


def test_what_is_no_version_cannot_be_pushed(bucket: ModelBucket, source: Path) -> None:
    directory = write_version(source, 1)
    with pytest.raises(ManifestInvalid, match="rename the directory"):
        bucket.push(VersionKey("photos", 2), directory)
    (directory / "folder").mkdir()
    with pytest.raises(VersionRefused, match="files only"):
        bucket.push(KEY, directory)
    with pytest.raises(ManifestInvalid):
        bucket.push(KEY, source / "nowhere")
    with pytest.raises(VersionRefused, match="at most 9 digits"):
        bucket.push(VersionKey("photos", 10**9), write_version(source, 10**9))


def test_sizes_are_compared_before_anything_is_fetched(bucket: ModelBucket, push: Push, tmp_path: Path) -> None:
    push(1)
    files = json.loads(version_of(bucket).content)
    files["files"]["absent.bin"] = {"size": 5, "sha256": hashlib.sha256(b"").hexdigest()}
    bucket.objects.put(f"photos/1/{FILES_FILE}", json.dumps(files).encode(), "application/json")
    with pytest.raises(VersionRefused, match=r"photos/1/absent.bin in the bucket"):
        bucket.fetch(version_of(bucket), tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_what_an_interrupted_push_left_can_be_withdrawn(bucket: ModelBucket, push: Push, s3: Bucket) -> None:
    push(1)
    bucket.objects.delete(f"photos/1/{FILES_FILE}")
    assert bucket.withdraw(KEY) == 2
    assert s3.names == set()
