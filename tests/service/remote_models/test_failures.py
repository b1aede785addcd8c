"""A version that cannot be fetched blocks neither other versions nor a rollback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from engines.repository.listing import VersionKey
from service.core.errors import NotReady
from service.remote_models.agreement import NoAgreement
from service.remote_models.bucket import ModelBucket
from tests.fakes.captured_logs import capture_logs
from tests.fakes.clock import Clock
from tests.service.remote_models.conftest import Follow, Never, Push, served, write_version

pytestmark = pytest.mark.slow
JSON = "application/json"


class Away:
    """An Agreement whose ledger is unreachable."""

    def agreed(self, held: Collection[str]) -> set[str]:
        """Raise NotReady."""
        raise NotReady("the ledger is away", code="ledger_unavailable")


def photos(version: int) -> VersionKey:
    return VersionKey("photos", version)


def reasons(logs: list[dict[str, object]]) -> str:
    return "\n".join(str(line.get("reason")) for line in logs)


def describe_as_huge(bucket: ModelBucket, version: int) -> bytes:
    """Set the size of a version's model to 1 EiB in the bucket's description; returns the old description."""
    found = bucket.versions()[photos(version)]
    assert found is not None
    files = json.loads(found.content)
    files["files"]["model.onnx"]["size"] = 2**60
    bucket.objects.put(f"photos/{version}/files.json", json.dumps(files).encode(), JSON)
    return found.content


def test_a_version_that_the_disk_cannot_hold_keeps_neither_others_nor_the_way_back(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    for version in (1, 2, 3, 4):
        push(version)
    before = describe_as_huge(bucket, 3)
    clock = Clock()
    follower = follow(clock=clock)
    with capture_logs() as logs:
        follower.follow()
        assert served(root) == {1, 2, 4}
        clock.now += 5.0
        bucket.withdraw(photos(4))
        follower.follow()
    assert served(root) == {1, 2}
    assert follower.failing_s == pytest.approx(5.0)
    assert reasons(logs).count("make room") == 1
    bucket.objects.put("photos/3/files.json", before, JSON)
    clock.now += 61.0
    follower.follow()
    assert (served(root), follower.failing_s) == ({1, 2, 3}, 0.0)


def test_a_foreign_folder_in_the_path_of_a_version_stays_and_blocks_no_other_version(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    foreign = root / "photos/2/notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    for version in (1, 2, 3):
        push(version)
    clock = Clock()
    follower = follow(clock=clock)
    with capture_logs() as logs:
        follower.follow()
    clock.now += 5.0
    assert (served(root), follower.failing_s) == ({1, 3}, 5.0)
    assert "photos/2 holds something else" in reasons(logs)
    bucket.withdraw(photos(3))
    follower.follow()
    assert (served(root), foreign.read_text()) == ({1}, "mine")
    foreign.unlink()
    clock.now += 61.0
    follower.follow()
    assert (served(root), follower.failing_s) == ({1, 2}, 0.0)


def test_what_was_left_half_is_removed_whatever_its_kind(follow: Follow, push: Push, root: Path) -> None:
    half = root / ".fetched/photos-1@0123.partial"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"gra")
    (root / ".fetched/link.partial").symlink_to(root)
    push(1)
    follower = follow()
    follower.follow()
    assert served(root) == {1}
    assert [path.name for path in (root / ".fetched").iterdir()] == [".lock"]


def test_a_version_is_withdrawn_even_while_the_ledger_is_unavailable(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    push(1)
    push(2)
    clock = Clock()
    follower = follow(clock=clock)
    follower.follow()
    bucket.withdraw(photos(2))
    push(3)
    follower.agreement = Away()
    follower.follow()
    clock.now += 5.0
    assert (served(root), follower.failing_s) == ({1}, 5.0)
    follower.agreement = NoAgreement()
    follower.follow()
    assert (served(root), follower.failing_s) == ({1, 3}, 0.0)


def test_the_last_version_of_a_model_stays_until_the_next_one_is_installed(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    push(1)
    follower = follow()
    follower.follow()
    push(2)
    follower.agreement = Never()
    follower.follow()
    bucket.withdraw(photos(1))
    with capture_logs() as logs:
        follower.follow()
        follower.follow()
    assert served(root) == {1}
    assert reasons(logs).count("photos/1 was withdrawn, and is served until") == 1
    follower.agreement = NoAgreement()
    follower.follow()
    follower.follow()
    assert served(root) == {2}


def test_a_way_back_is_taken_at_once_while_a_newer_version_waits(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path
) -> None:
    push(1)
    push(2)
    follower = follow()
    follower.follow()
    push(3)
    follower.agreement = Never()
    bucket.withdraw(photos(2))
    follower.follow()
    assert served(root) == {1}


@pytest.mark.parametrize("older", [True, False])
def test_a_number_that_was_withdrawn_and_pushed_with_other_files_is_fetched_again(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path, source: Path, older: bool
) -> None:
    if older:
        push(1)
    push(2)
    follower = follow()
    follower.follow()
    bucket.withdraw(photos(2))
    shutil.rmtree(source / "photos/2")
    bucket.push(photos(2), write_version(source, 2, b"other files"))
    follower.agreement = Never()
    follower.follow()
    assert served(root) == ({1} if older else {2})
    follower.agreement = NoAgreement()
    follower.follow()
    assert (root / "photos/2/model.onnx").read_bytes() == b"other files"


@pytest.mark.parametrize("content", [b'{"x":' + b"[" * 100_000, b" " * 2**20 + b'{"files":{}}'])
def test_a_description_that_is_too_deep_or_too_large_is_refused(
    follow: Follow, push: Push, bucket: ModelBucket, root: Path, content: bytes
) -> None:
    push(1)
    bucket.objects.put("photos/2/files.json", content, JSON)
    follower = follow()
    follower.follow()
    assert served(root) == {1}
    assert bucket.versions()[photos(2)] is None


def test_an_unexpected_exception_is_logged_and_does_not_end_the_rounds(follow: Follow, push: Push, root: Path) -> None:
    class Wrong:
        def agreed(self, held: Collection[str]) -> set[str]:
            raise ZeroDivisionError

    push(1)
    clock = Clock()
    follower = follow(Wrong(), clock)
    with capture_logs() as logs:
        follower.follow()
        clock.now += 5.0
        follower.follow()
    assert follower.failing_s == pytest.approx(5.0)
    assert len([line for line in logs if line["log_level"] == "error"]) == 1
    follower.agreement = NoAgreement()
    follower.follow()
    assert (served(root), follower.failing_s) == ({1}, 0.0)


@pytest.mark.parametrize("lost", ["photos/1/model.onnx", "photos/1/files.json", "photos/1/manifest.json"])
def test_an_installed_version_that_lost_bytes_is_fetched_again(
    follow: Follow, push: Push, root: Path, lost: str
) -> None:
    push(1)
    follow().follow()
    whole = (root / lost).read_bytes()
    (root / lost).write_bytes(b"")
    follow().follow()
    assert (root / lost).read_bytes() == whole


def test_a_version_is_served_before_older_ones_are_fetched(follow: Follow, push: Push, root: Path) -> None:
    class Watching(NoAgreement):
        seen: list[set[int]] = []  # noqa: RUF012 -- of this test
        told: list[set[str]] = []  # noqa: RUF012 -- of this test

        def agreed(self, held: Collection[str]) -> set[str]:
            self.seen.append(served(root))
            self.told.append({one.partition("@")[0] for one in held})
            return super().agreed(held)

    for version in (1, 2, 3):
        push(version)
    follow(Watching()).follow()
    assert Watching.seen == [set(), set(), {3}, {2, 3}]
    assert Watching.told[:2] == [set(), {"photos/3"}], "others wait for a host from its first fetch on"


def test_a_waiting_version_is_logged_once(follow: Follow, push: Push) -> None:
    push(1)
    follower = follow(Never())
    with capture_logs() as logs:
        follower.follow()
        follower.follow()
    assert len([line for line in logs if "waits" in line["event"]]) == 1
