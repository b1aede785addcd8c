"""Results that the disk or the spool cannot take are refused, and every promised one is kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from service.core.errors import NotReady
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.disk_state import DiskState
from service.saving.spool.capacity import SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore
from tests.fakes.captured_logs import capture_logs
from tests.fakes.disk import SYNCS, WRITES, FailingDisk
from tests.service.saving.store.slow_storage import (
    QUICK,
    ROOMY,
    AnHour,
    Counts,
    Elsewhere,
    SlowFiles,
    open_store,
    put,
    result,
)
from tests.serving.waiting import wait_until


def store_on(disk: Disk, root: Path, limits: SpoolLimits = ROOMY, **options: Any) -> ResultStore:
    """Return a store that makes all its file operations on this disk."""
    spool_files = SpoolFiles(SpoolOwner(root, lambda: uuid4().hex), disk)
    return ResultStore(ResultFiles(root, disk), spool_files, limits, disk=DiskState(root, disk=disk), **options)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_result_that_the_disk_does_not_take_is_refused_and_so_are_those_after_it(tmp_path: Path, code: int) -> None:
    disk = FailingDisk()
    with store_on(disk, tmp_path) as store:
        put(store, result(1))
        wait_until(lambda: store.pending == 0)  # else its failure could be reported after the disk has recovered
        early = store.reserve(5)
        disk.fail(code, WRITES)
        for reservation in (early, store.reserve(5)):
            with pytest.raises(NotReady) as refused:
                store.put(reservation, result(2))
            assert refused.value.code == "storage_unavailable"
        asked = disk.asked_here
        with pytest.raises(NotReady) as refused:
            store.reserve(5)
        assert refused.value.code == "storage_unavailable"
        assert disk.asked_here == asked, "refused before anything is written"
        assert store.get(result(2).id) is None

        store.probe_disk()
        assert store.disk.failure_reason
        disk.mend()
        store.probe_disk()
        put(store, result(2))
        assert store.flush(20) == 0
        assert store.count_unsaved().total == 0
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in (1, 2))


def test_space_for_refused_results_is_released_in_any_order(tmp_path: Path) -> None:
    disk = FailingDisk()
    with store_on(disk, tmp_path, SpoolLimits(max_items=1, max_bytes=100)) as store:
        disk.fail(errno.ENOSPC, WRITES)
        with store.reserve(5) as reservation, pytest.raises(NotReady):
            store.put(reservation, result(1))
        disk.mend()
        store.probe_disk()
        store.reserve(5).release()
        put(store, result(1))


def test_what_cannot_be_saved_where_it_lasts_is_promised_no_more(tmp_path: Path) -> None:
    disk = FailingDisk()
    with store_on(disk, tmp_path, backoff=AnHour()) as store:
        disk.fail(errno.EIO, SYNCS)
        put(store, result(1))
        wait_until(lambda: store.disk.failure_reason == "Input/output error")
        with pytest.raises(NotReady):
            store.reserve(5)
        assert store.get(result(1).id) == (b"image", "image/png")

        disk.mend()

        def is_saved() -> bool:
            store.probe_disk()  # again, as the server does: a writer's own probe may fail just now, and undo this one
            return store.pending == 0 and not store.disk.failure_reason

        wait_until(is_saved)  # without the pause of an hour
        put(store, result(2))
        assert store.flush(20) == 0
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in (1, 2))


class NoRoomForSidecars(FailingDisk):
    """A disk that, while it fails, takes images but no sidecars."""

    def write(self, path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            self._ask("sidecar")
        super().write(path, data)


def test_an_image_without_its_sidecar_is_no_result_and_the_spool_has_it_until_both_are_there(tmp_path: Path) -> None:
    disk = NoRoomForSidecars()
    disk.fail(errno.ENOSPC, ("sidecar",))
    counts = Counts()
    with store_on(disk, tmp_path, observer=counts, backoff=QUICK) as store:
        put(store, result(1))
        wait_until(lambda: counts.failures > 1)
        assert len(list(tmp_path.glob("??/*.png"))) == 1
        assert ResultFiles(tmp_path).read(result(1).id) is None
        assert SpoolFiles(SpoolOwner(tmp_path, lambda: "other")).read(result(1).id), "whoever asks, and after a kill"
        assert store.count_unsaved() == (1, 0, 0)
        disk.mend()
        assert store.flush(20) == 0
    assert ResultFiles(tmp_path).read(result(1).id) == (b"image", "image/png")


def test_a_storage_elsewhere_that_fails_stops_no_promises(tmp_path: Path) -> None:
    disk, elsewhere = FailingDisk(), Elsewhere(tmp_path / "bucket")
    elsewhere.gate.set()
    elsewhere.error = OSError(errno.EIO, "unreachable")
    spool_files = SpoolFiles(SpoolOwner(tmp_path, lambda: uuid4().hex), disk)
    counts, state = Counts(), DiskState(tmp_path, disk=disk)
    with ResultStore(elsewhere, spool_files, ROOMY, disk=state, observer=counts, backoff=QUICK) as store:
        put(store, result(1))
        wait_until(lambda: counts.failures > 2)
        put(store, result(2))
        assert "write" not in disk.asked, "nor does it make the spool's disk suspect, which would be probed"
        elsewhere.error = None
        assert store.flush(20) == 0


def test_a_spool_that_could_not_be_synced_is_relied_on_no_more(tmp_path: Path) -> None:
    """With the storage unreachable too, results are spooled again, in another file, when the disk has recovered."""
    disk, elsewhere = FailingDisk(), Elsewhere(tmp_path / "bucket")
    elsewhere.gate.set()
    elsewhere.error = OSError(errno.EIO, "unreachable")
    owner = SpoolOwner(tmp_path, lambda: uuid4().hex)
    counts, state = Counts(), DiskState(tmp_path, disk=disk)
    options: dict[str, Any] = {"disk": state, "threads": 1, "observer": counts, "backoff": QUICK}
    with ResultStore(elsewhere, SpoolFiles(owner, disk), ROOMY, **options) as store:
        disk.fail(errno.EIO, SYNCS)
        put(store, result(1))
        wait_until(lambda: state.failure_reason and counts.failures > 1)  # the first has ended, with a copy in memory
        (suspect,) = owner.folder.glob("*.log")
        assert store.count_unsaved() == (0, 1, 0)
        suspect.write_bytes(b"")  # as after the kernel has dropped its unsynced pages
        assert store.get(result(1).id) == (b"image", "image/png")

        disk.mend()

        def only_one_waits() -> bool:
            store.probe_disk()
            return store.count_unsaved() == (1, 0, 0)

        wait_until(only_one_waits)
        wait_until(lambda: suspect not in owner.folder.glob("*.log"))
        assert SpoolFiles(SpoolOwner(tmp_path, lambda: "other")).read(result(1).id)
        elsewhere.error = None
        assert store.flush(20) == 0


class DropsUnsyncedPages(FailingDisk):
    """A disk that loses a file's data when its sync fails, as Linux may."""

    def sync(self, descriptor: int) -> None:
        try:
            super().sync(descriptor)
        except OSError:
            os.ftruncate(descriptor, 0)
            raise


def test_a_result_that_is_still_in_memory_outlives_the_spool_that_lost_it(tmp_path: Path) -> None:
    disk, elsewhere = DropsUnsyncedPages(), Elsewhere(tmp_path / "bucket")
    elsewhere.gate.set()
    elsewhere.error = OSError(errno.EIO, "unreachable")
    spool_files = SpoolFiles(SpoolOwner(tmp_path, lambda: uuid4().hex), disk)
    counts, state = Counts(), DiskState(tmp_path, disk=disk)
    options: dict[str, Any] = {"disk": state, "threads": 1, "observer": counts, "backoff": QUICK}
    with ResultStore(elsewhere, spool_files, ROOMY, **options) as store:
        disk.fail(errno.EIO, SYNCS)
        put(store, result(1))
        wait_until(lambda: state.failure_reason and counts.failures > 1)  # the first has ended, with a copy in memory
        assert store.get(result(1).id) == (b"image", "image/png")
        disk.mend()
        elsewhere.error = None
        assert store.flush(20) == 0
    assert ResultFiles(tmp_path / "bucket").read(result(1).id) == (b"image", "image/png")


def test_a_result_that_was_deleted_from_the_spool_does_not_stop_the_writers(files: SlowFiles) -> None:
    with capture_logs() as lines, open_store(files, threads=1) as store:
        put(store, result(1))
        wait_until(lambda: files.tries == 1)  # the writer holds the first result and waits
        put(store, result(2), result(3))
        store._spooled.remove(f"{2:032x}")
        files.gate.set()
        assert store.flush(20) == 0
        assert store.get(f"{2:032x}") is None
        assert store.get(f"{3:032x}") is not None
        assert store.count_unsaved() == (0, 0, 1)
    assert [line["results"] for line in lines] == [[f"{2:032x}"]]
