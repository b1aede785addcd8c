from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from service.imaging.pool import parallel_steps
from service.imaging.pool.parallel_steps import DeferredStep, HelperThreads, results_of, run_sequentially

PATIENCE_S = 30


def refuse(number: int) -> int:
    raise ValueError(f"piece {number}")


def test_results_come_in_the_order_of_the_pieces() -> None:
    helpers = HelperThreads(3, lambda: 3)

    def slow(number: int) -> int:
        time.sleep(0.01 * (4 - number))
        return number

    pieces: list[Callable[[], int]] = [partial(slow, number) for number in range(5)]
    assert helpers.run_with_helpers(pieces) == run_sequentially(pieces) == [0, 1, 2, 3, 4]
    helpers.close()


def test_pieces_run_at_the_same_time() -> None:
    helpers, meet = HelperThreads(1, lambda: 1), threading.Barrier(2)
    assert sorted(helpers.run_with_helpers([lambda: meet.wait(PATIENCE_S), lambda: meet.wait(PATIENCE_S)])) == [0, 1]
    helpers.close()


@pytest.mark.parametrize("helpers_wanted", [0, -3, 1])
def test_the_first_error_in_order_is_raised(helpers_wanted: int) -> None:
    helpers = HelperThreads(1, lambda: helpers_wanted)
    with pytest.raises(ValueError, match="piece 1"):
        helpers.run_with_helpers([lambda: 0, lambda: refuse(1), lambda: refuse(2)])
    helpers.close()


def test_an_error_is_raised_when_the_other_pieces_have_ended() -> None:
    helpers, begun = HelperThreads(2, lambda: 2), threading.Barrier(3)
    ended: list[int] = []

    def fail() -> None:
        begun.wait(PATIENCE_S)
        refuse(0)

    def go_on() -> None:
        begun.wait(PATIENCE_S)
        if threading.current_thread() is not threading.main_thread():  # of two other threads at least one helps
            time.sleep(0.05)
        ended.append(1)

    with pytest.raises(ValueError, match="piece 0"):
        helpers.run_with_helpers([fail, go_on, go_on])
    assert len(ended) == 2
    helpers.close()


def test_pieces_behind_one_that_failed_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    helpers, begun, failed = HelperThreads(1, lambda: 1), threading.Barrier(2), threading.Event()
    run_next, done = parallel_steps._SharedSteps._run_next, list[int]()

    def run_next_and_tell(steps: parallel_steps._SharedSteps[Any]) -> bool:
        goes_on = run_next(steps)
        if steps._errors:
            failed.set()
        return goes_on

    def fail() -> None:
        begun.wait(PATIENCE_S)
        refuse(1)

    def slow() -> None:
        begun.wait(PATIENCE_S)
        assert failed.wait(PATIENCE_S)

    monkeypatch.setattr(parallel_steps._SharedSteps, "_run_next", run_next_and_tell)
    pieces: list[Callable[[], None]] = [slow, fail, partial(done.append, 2), partial(done.append, 3)]
    with pytest.raises(ValueError, match="piece 1"):
        helpers.run_with_helpers(pieces)
    assert done == []
    helpers.close()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_keeps_nothing_in_memory(failing: int) -> None:
    helpers = HelperThreads(1, lambda: 1)
    picture = np.zeros(1)
    kept = weakref.ref(picture)
    pieces: list[Callable[[], object]] = [picture.sum, picture.sum]
    pieces[failing] = partial(picture.reshape, 2)
    with pytest.raises(ValueError, match="cannot reshape"):
        helpers.run_with_helpers(pieces)
    del picture, pieces
    helpers.close()
    assert kept() is None


def test_without_a_helper_the_caller_runs_all_steps() -> None:
    helpers = HelperThreads(1, lambda: 0)
    threads = helpers.run_with_helpers([threading.get_ident] * 3)
    assert set(threads) == {threading.get_ident()}
    helpers.close()


def test_busy_helpers_are_not_waited_for() -> None:
    helpers, release, begun = HelperThreads(1, lambda: 1), threading.Event(), threading.Barrier(3)

    def block() -> None:
        begun.wait(PATIENCE_S)
        release.wait(PATIENCE_S)

    blocker = threading.Thread(target=lambda: helpers.run_with_helpers([block, block]))
    blocker.start()
    begun.wait(PATIENCE_S)
    assert helpers.run_with_helpers([lambda: 1, lambda: 2]) == [1, 2]
    release.set()
    blocker.join()
    helpers.close()


def test_no_pieces_are_no_work() -> None:
    helpers = HelperThreads(1, lambda: 1)
    assert helpers.run_with_helpers([]) == []
    helpers.close()


def test_if_no_thread_can_be_started_the_caller_runs_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_to_start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    helpers = HelperThreads(3, lambda: 3)
    assert set(helpers.run_with_helpers([threading.get_ident] * 4)) == {threading.get_ident()}
    helpers.close()


def test_helpers_stay_for_later_steps_and_end_when_closed() -> None:
    helpers, before = HelperThreads(2, lambda: 2), set(threading.enumerate())
    for _ in range(5):
        wait = partial(threading.Barrier(3).wait, PATIENCE_S)
        assert sorted(helpers.run_with_helpers([wait] * 3)) == [0, 1, 2]
    assert len(set(threading.enumerate()) - before) == 2
    helpers.close()
    assert set(threading.enumerate()) <= before


def test_a_deferred_step_runs_once_and_other_callers_wait_for_it() -> None:
    begun, go_on, runs = threading.Event(), threading.Event(), list[int]()

    def step() -> str:
        runs.append(1)
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return "found"

    later, found = DeferredStep(step), list[str]()
    askers = [threading.Thread(target=lambda: found.append(later())) for _ in range(2)]
    for asker in askers:
        asker.start()
    assert begun.wait(PATIENCE_S)
    assert found == []
    go_on.set()
    for asker in askers:
        asker.join(PATIENCE_S)
    assert (found, later(), runs) == (["found", "found"], "found", [1])


def test_a_deferred_step_that_failed_is_run_again_when_its_result_is_needed() -> None:
    later = DeferredStep(lambda: refuse(1))
    for _ in range(2):
        with pytest.raises(ValueError, match="piece 1"):
            later()


def test_only_steps_that_are_not_done_are_run_and_all_results_come_in_order() -> None:
    runs: list[int] = []

    def noted(number: int) -> int:
        runs.append(number)
        return number

    steps = [DeferredStep(partial(noted, number)) for number in range(3)]
    steps[1]()
    given: list[int] = []

    def run_steps(pieces: Any) -> list[Any]:
        given.append(len(pieces))
        return run_sequentially(pieces)

    assert results_of(steps, run_steps) == [0, 1, 2]
    assert (runs, given) == ([1, 0, 2], [2])
