"""A storage that fails, pauses or hangs: saving is delayed and retried, and no result is lost."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.core.errors import Overloaded
from service.saving.results import Clock
from service.saving.spool.capacity import SpoolLimits
from service.saving.storage.disk import ResultFiles
from tests.fakes.captured_logs import capture_logs
from tests.service.saving.store.slow_storage import (
    QUICK,
    ROOMY,
    AnHour,
    Counts,
    SlowFiles,
    files_directory,
    open_store,
    put,
    result,
)
from tests.serving.waiting import wait_until


def test_a_failing_disk_delays_results_and_loses_none(files: SlowFiles) -> None:
    files.gate.set()
    files.error = OSError(28, "No space left on device")
    counts = Counts()

    def told(word: str) -> int:
        return sum(word in line["event"] for line in lines)

    with (
        capture_logs() as lines,
        open_store(files, SpoolLimits(3, 1000), observer=counts, backoff=QUICK) as store,
    ):
        put(store, result(1), result(2), result(3))
        wait_until(lambda: lines and counts.failures >= 10)  # the writer that failed first may be slow to log it
        assert store.flush(0.01) == 3
        assert store.get(f"{2:032x}") == (b"image", "image/png")
        with pytest.raises(Overloaded):
            store.reserve(5)
        assert [line["event"] for line in lines] == [
            "saving failed; the spool keeps the results, and saving is retried"
        ]
        assert "No space left" in lines[0]["error"]

        files.error = None
        assert store.flush(20) == 0
        wait_until(lambda: told("works") == told("failed"))
        assert told("failed") <= 2  # a writer may report an earlier failure just after another's success
        wait_until(lambda: len(counts.lags_s) == 3)  # the last one is counted after the flush has seen it
    assert all(ResultFiles(files_directory(files)).read(f"{n:032x}") for n in (1, 2, 3))


def test_an_unforeseen_error_does_not_end_the_writers(files: SlowFiles) -> None:
    files.gate.set()
    files.error = RuntimeError("a bug")
    with open_store(files, ROOMY, threads=1, backoff=QUICK) as store:
        put(store, result(1))
        wait_until(lambda: files.tries >= 3)
        files.error = None
        assert store.flush(20) == 0


def test_flush_does_not_wait_for_the_pause_of_a_failing_disk(files: SlowFiles) -> None:
    files.gate.set()
    files.error = OSError("unplugged")
    counts = Counts()
    with open_store(files, ROOMY, threads=1, observer=counts, backoff=AnHour(first_s=0.001)) as store:
        put(store, result(1))
        wait_until(lambda: counts.failures == 1)
        with ThreadPoolExecutor(1) as pool:
            left = pool.submit(store.flush, 20)
            wait_until(lambda: counts.failures > 1)
            files.error = None
            assert left.result() == 0


def test_flush_returns_what_is_left_when_the_time_is_up(files: SlowFiles) -> None:
    with open_store(files, ROOMY) as store:
        put(store, result(1), result(2), result(3))
        assert store.flush(0.01) == 3
        files.gate.set()
        assert store.flush(20) == 0


def test_the_age_of_the_oldest_result_and_the_lag_are_reported(files: SlowFiles) -> None:
    times = {"now": 0.0}
    counts = Counts()
    with open_store(files, ROOMY, observer=counts, clock=Clock(now=lambda: times["now"])) as store:
        assert store.oldest_age_s == 0.0
        put(store, result(1))
        times["now"] = 2.0
        put(store, result(2))
        assert store.oldest_age_s == 2.0
        times["now"] = 3.0
        files.gate.set()
        assert store.flush(20) == 0
        wait_until(lambda: len(counts.lags_s) == 2)
        assert sorted(counts.lags_s) == [1.0, 3.0]
        assert store.oldest_age_s == 0.0


def test_closing_leaves_a_hanging_disk_behind(files: SlowFiles) -> None:
    store = open_store(files, ROOMY, threads=1).start()
    put(store, result(1))
    wait_until(lambda: files.tries == 1)
    begun = time.monotonic()
    store.close(timeout_s=0.05)
    assert time.monotonic() - begun < 5


def test_many_threads_that_hang_are_waited_for_together(files: SlowFiles) -> None:
    store = open_store(files, ROOMY, threads=12).start()
    put(store, *map(result, range(12)))
    wait_until(lambda: files.tries == 12)
    begun = time.monotonic()
    store.close(timeout_s=0.5)
    assert time.monotonic() - begun < 4


async def test_put_waits_for_no_slow_storage(files: SlowFiles) -> None:
    with open_store(files, ROOMY, threads=1) as store:
        put(store, *(result(n, bytes(1_000_000)) for n in range(20)))
        assert len(store.spooled_ids()) == 20
        body = await asyncio.to_thread(store.get, f"{3:032x}")
        assert body == (bytes(1_000_000), "image/png")
        files.gate.set()
        assert await asyncio.to_thread(store.flush, 20) == 0


def test_what_the_end_leaves_and_loses_is_counted(files: SlowFiles) -> None:
    store = open_store(files, threads=1).start()
    put(store, result(1), result(2), result(3))
    wait_until(lambda: files.tries == 1)
    store._spooled.remove(f"{2:032x}")
    assert store.flush(0.01) == 3
    assert store.count_unsaved() == (2, 0, 1)
    store.close(timeout_s=0.01)


class Broken(Counts):
    """An observer with a bug."""

    def saved(self, lag_s: float) -> None:
        super().saved(lag_s)
        raise KeyError("a bug")


def test_an_exception_in_a_save_callback_ends_no_writer(files: SlowFiles) -> None:
    files.gate.set()
    with capture_logs() as lines, open_store(files, threads=1, observer=Broken()) as store:
        for number in (1, 2):
            put(store, result(number))
            assert store.flush(20) == 0
    told = [line for line in lines if line["event"] == "a step after a save failed; the thread continues"]
    assert [line["results"] for line in told] == [[f"{1:032x}"], [f"{2:032x}"]]
