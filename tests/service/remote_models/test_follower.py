"""The models folder follows the bucket; a failed fetch leaves the folder unchanged."""

from __future__ import annotations

from pathlib import Path

from engines.repository.listing import VersionKey
from service.remote_models.agreement import NoAgreement
from service.remote_models.bucket import ModelBucket
from service.remote_models.local_folder import LocalFolder
from service.saving.storage.s3 import ObjectLocation, open_object_storage
from tests.fakes.captured_logs import capture_logs
from tests.fakes.clock import Clock
from tests.service.remote_models.conftest import Follow, Never, Push, served, write_version
from tests.serving.ports import free_port


def test_versions_come_and_go_with_those_in_the_bucket(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    push(1)
    follower = follow()
    follower.follow()
    assert served(root) == {1}
    push(2)
    follower.follow()
    assert served(root) == {1, 2}
    bucket.withdraw(VersionKey("photos", 2))
    follower.follow()
    assert served(root) == {1}
    follow().follow()  # as after a restart
    assert served(root) == {1}


def test_what_was_put_there_by_hand_stays(follow: Follow, push: Push, bucket: ModelBucket, root: Path) -> None:
    write_version(root, 1, b"by hand")
    write_version(root, 7)
    push(1)
    push(2)
    follower = follow()
    with capture_logs() as logs:
        follower.follow()
        follower.follow()
    assert served(root) == {1, 2, 7}
    assert (root / "photos/1/model.onnx").read_bytes() == b"by hand"
    assert len([line for line in logs if "other files" in str(line.get("reason"))]) == 1
    bucket.withdraw(VersionKey("photos", 1))
    follower.follow()
    assert served(root) == {1, 2, 7}


def test_a_version_that_is_damaged_in_the_bucket_is_not_served_and_keeps_no_other(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    for version in (1, 2, 3):
        push(version)
    bucket.objects.put("photos/2/model.onnx", b"grabh", "application/octet-stream")
    bucket.objects.put("photos/3/files.json", b"{", "application/json")
    clock = Clock()
    follower = follow(clock=clock)
    follower.follow()
    assert served(root) == {1}
    assert [path.name for path in (root / ".fetched").iterdir()] == [".lock"]
    bucket.objects.put("photos/2/model.onnx", b"graph", "application/octet-stream")
    clock.now += 61.0
    follower.follow()
    assert served(root) == {1, 2}


def test_while_the_bucket_is_unavailable_or_empty_local_versions_stay(
    follow: Follow, push: Push, root: Path, bucket: ModelBucket
) -> None:
    push(1)
    clock = Clock()
    follower = follow(clock=clock)
    follower.follow()
    nobody = ObjectLocation("s3://results/models", f"http://127.0.0.1:{free_port()}")
    remote, follower.bucket = follower.bucket, ModelBucket(open_object_storage(nobody))
    with capture_logs() as logs:
        follower.follow()
        clock.now += 5.0
        follower.follow()
    assert (served(root), follower.failing_s) == ({1}, 5.0)
    assert len([line for line in logs if line["log_level"] == "warning"]) == 1
    follower.bucket = remote
    follower.follow()
    assert (served(root), follower.failing_s) == ({1}, 0.0)
    bucket.withdraw(VersionKey("photos", 1))
    follower.follow()
    assert served(root) == {1}, "an address that is wrong looks like an empty bucket"


def test_a_version_waits_complete_until_the_hosts_agree(follow: Follow, push: Push, root: Path) -> None:
    push(1)
    never = Never()
    follower = follow(never)
    follower.follow()
    follower.follow()
    assert served(root) == set()
    assert {one.partition("@")[0] for one in never.told} == {"photos/1"}
    follower.agreement = NoAgreement()
    follower.follow()
    assert served(root) == {1}


def test_one_process_of_a_host_fetches(follow: Follow, push: Push, root: Path) -> None:
    push(1)
    with LocalFolder(root).lock() as locked:
        assert locked
        follow().follow()
        assert served(root) == set()
    follow().follow()
    assert served(root) == {1}


def test_what_a_killed_process_left_half_is_removed_and_fetched_again(follow: Follow, push: Push, root: Path) -> None:
    half = root / ".fetched/photos-1@0123.partial"
    half.mkdir(parents=True)
    (half / "model.onnx").write_bytes(b"gra")
    push(1)
    follow().follow()
    assert served(root) == {1}
    assert not half.exists()
