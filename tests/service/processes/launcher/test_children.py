"""When the launcher's processes are started again, drained, ended and killed; the processes only sleep."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from service.core.settings import Settings
from service.processes.launcher.children import Children
from tests.fakes.captured_logs import capture_logs
from tests.service.processes.launcher.sleeper import Sleeper

SETTINGS = Settings(hang_timeout_s=10, drain_delay_s=5, drain_timeout_s=30)
LONGEST_END_S = 5 + 30 + 20
"""Seconds after a signal that processes have to end in, with these settings."""


Make = Callable[..., Children]


@pytest.fixture
def watch() -> Iterator[Make]:
    """Make children of an engine process and front ends that were started at second 100."""
    made: list[Sleeper] = []

    def make(engine: Sleeper, *front_ends: Sleeper) -> Children:
        made.extend((engine, *front_ends))
        children = Children([engine], front_ends, SETTINGS)
        children.start(100.0)
        return children

    yield make
    for child in made:
        if child.process is not None:
            child.process.kill()
            child.process.wait(30)


@pytest.fixture
def engine() -> Sleeper:
    return Sleeper("engine-0")


@pytest.fixture
def front_end() -> Sleeper:
    return Sleeper("front_end-0")


def test_a_process_that_dies_is_replaced_at_once_and_after_further_deaths_with_a_pause(
    watch: Make, engine: Sleeper, front_end: Sleeper
) -> None:
    children, first = watch(engine, front_end), front_end.pid
    front_end.signal(signal.SIGKILL)
    front_end.await_end()
    children.check(101.0)
    assert front_end.ended_pids == [first]
    assert front_end.pid != first

    front_end.signal(signal.SIGKILL)
    front_end.await_end()
    children.check(102.0)
    assert (front_end.running, front_end.due_at) == (False, 102.5)
    children.check(102.4)
    assert not front_end.running
    children.check(102.5)
    assert front_end.running
    assert engine.ended_pids == []
    assert children.clean, "no signal has asked for an end"


def test_while_no_process_runs_a_signal_ends_the_server_and_nothing_else_does(
    watch: Make, engine: Sleeper, front_end: Sleeper
) -> None:
    children = watch(engine, front_end)
    for now in (101.0, 102.0):
        for child in (engine, front_end):
            child.signal(signal.SIGKILL)
            child.await_end()
        children.check(now)
    assert (engine.running, front_end.running) == (False, False)
    assert not children.ended
    children.handle_signal(signal.SIGTERM, 102.1)
    assert children.ended
    children.check(110.0)
    assert children.ended, "nothing is started again"


def test_a_process_without_a_heartbeat_is_killed_and_replaced(watch: Make, engine: Sleeper, front_end: Sleeper) -> None:
    children, first = watch(engine, front_end), engine.pid
    engine.last_heartbeat_at = front_end.last_heartbeat_at = 104.0
    for now in (104.0, 108.0, 112.0, 114.0):
        children.check(now)
    assert not engine.is_signalled()
    front_end.last_heartbeat_at = 114.5
    children.check(114.5)
    assert engine.await_end() == -signal.SIGKILL
    children.check(115.0)
    assert engine.ended_pids == [first]
    assert engine.running
    assert front_end.ended_pids == []


def test_a_process_that_clears_its_heartbeat_because_it_ends_is_not_taken_for_one_that_hangs(
    watch: Make, engine: Sleeper
) -> None:
    front_end = Sleeper("front_end-0", ignored="TERM")
    children = watch(engine, front_end)
    for now in range(101, 1000, 4):
        engine.last_heartbeat_at = front_end.last_heartbeat_at = now
        children.check(now)
    children.handle_signal(signal.SIGTERM, 1000.0)
    front_end.last_heartbeat_at = 0.0  # it writes its last results now
    engine.last_heartbeat_at = 1000.0
    children.check(1000.2)
    assert not front_end.is_signalled()


def test_a_replacement_that_never_writes_a_heartbeat_is_killed_after_the_time_for_a_start(
    watch: Make, engine: Sleeper, front_end: Sleeper
) -> None:
    children = watch(engine, front_end)
    engine.last_heartbeat_at = front_end.last_heartbeat_at = 101.0
    children.check(101.0)
    front_end.signal(signal.SIGKILL)
    front_end.await_end()
    front_end.last_heartbeat_at = 0.0
    for now in range(102, 102 + 610, 4):
        engine.last_heartbeat_at = now
        children.check(now)
    assert not front_end.is_signalled()
    children.check(102 + 610.5)
    assert front_end.await_end() == -signal.SIGKILL


@pytest.mark.parametrize("suspended_s", [6.0, 400.0])
def test_after_the_machine_was_suspended_processes_get_time_for_a_heartbeat(
    watch: Make, engine: Sleeper, front_end: Sleeper, suspended_s: float
) -> None:
    children = watch(engine, front_end)
    engine.last_heartbeat_at = front_end.last_heartbeat_at = 101.0
    children.check(101.0)
    woken_at = 101.0 + suspended_s
    children.check(woken_at)
    front_end.last_heartbeat_at = woken_at + 1
    for after_s in (4.0, 8.0):
        children.check(woken_at + after_s)
    assert not engine.is_signalled()
    children.check(woken_at + 10.5)
    assert engine.await_end() == -signal.SIGKILL
    assert not front_end.is_signalled()


def test_a_signal_ends_front_ends_and_then_engine_processes(watch: Make, engine: Sleeper, front_end: Sleeper) -> None:
    children = watch(engine, front_end)
    children.handle_signal(signal.SIGINT, 101.0)
    assert front_end.await_end() == -signal.SIGTERM
    assert not engine.is_signalled()
    assert not children.ended
    children.check(101.2)
    assert engine.await_end() == -signal.SIGTERM
    children.check(101.4)
    assert children.ended
    assert children.clean


def test_a_hangup_is_passed_on_and_never_counts_as_a_second_request(watch: Make, engine: Sleeper) -> None:
    front_end = Sleeper("front_end-0", ignored="TERM")
    children = watch(engine, front_end)
    children.handle_signal(signal.SIGTERM, 101.0)
    children.check(101.2)
    assert front_end.running
    children.handle_signal(signal.SIGHUP, 105.0)
    assert front_end.await_end() == -signal.SIGHUP
    children.check(105.2)
    engine.await_end()
    children.check(105.4)
    assert children.ended
    assert children.clean


def test_while_front_ends_drain_a_dead_engine_process_is_replaced_and_a_dead_front_end_is_not(
    watch: Make, engine: Sleeper
) -> None:
    front_end, dying = Sleeper("front_end-0", ignored="TERM"), Sleeper("front_end-1", ignored="TERM")
    children = watch(engine, front_end, dying)
    children.handle_signal(signal.SIGTERM, 101.0)
    for child in (engine, dying):
        child.signal(signal.SIGKILL)
        child.await_end()
    children.check(101.2)
    assert engine.running, "a front end still needs it"
    assert not dying.running

    front_end.signal(signal.SIGKILL)
    front_end.await_end()
    children.check(101.4)
    assert not front_end.running
    engine.await_end()
    children.check(101.6)
    assert children.ended
    assert not children.clean, "requests may have been lost"


@pytest.mark.parametrize(("signalled", "restarts"), [(False, True), (True, False)])
def test_the_log_announces_a_restart_only_if_there_will_be_one(
    watch: Make, engine: Sleeper, *, signalled: bool, restarts: bool
) -> None:
    front_end = Sleeper("front_end-0", ignored="TERM")
    children = watch(engine, front_end)
    if signalled:
        children.handle_signal(signal.SIGTERM, 101.0)
    front_end.signal(signal.SIGKILL)
    front_end.await_end()
    with capture_logs() as logs:
        children.check(101.2)
    (ended,) = (line for line in logs if line["event"] == "process ended")
    assert ("restart_in_s" in ended, front_end.running) == (restarts, restarts)


def test_a_second_request_to_end_is_passed_on_by_a_signal_of_its_own(watch: Make) -> None:
    engine, front_end = Sleeper("engine-0", ignored="TERM"), Sleeper("front_end-0", ignored="TERM")
    children = watch(engine, front_end)
    children.handle_signal(signal.SIGTERM, 101.0)
    children.handle_signal(signal.SIGTERM, 102.5)
    assert front_end.await_end() == -signal.SIGUSR2, "SIGTERM may come to it from others, and late"
    assert not engine.is_signalled()


def test_the_third_request_to_end_kills_all(watch: Make) -> None:
    engine, front_end = Sleeper("engine-0", ignored="TERM"), Sleeper("front_end-0", ignored="TERM USR2")
    children = watch(engine, front_end)
    children.handle_signal(signal.SIGTERM, 101.0)
    children.handle_signal(signal.SIGTERM, 101.5)  # belongs to the first request
    children.handle_signal(signal.SIGTERM, 102.5)
    assert not front_end.is_signalled()
    children.handle_signal(signal.SIGTERM, 104.0)
    assert (engine.await_end(), front_end.await_end()) == (-signal.SIGKILL, -signal.SIGKILL)
    children.check(104.2)
    assert children.ended
    assert not children.clean


def test_a_third_request_that_finds_only_processes_that_have_ended_makes_no_clean_end_unclean(
    watch: Make, engine: Sleeper, front_end: Sleeper
) -> None:
    children = watch(engine, front_end)
    children.handle_signal(signal.SIGTERM, 101.0)
    front_end.await_end()
    children.check(101.2)
    engine.await_end()
    children.handle_signal(signal.SIGTERM, 102.5)
    children.handle_signal(signal.SIGTERM, 104.0)
    children.check(104.2)
    assert children.ended
    assert children.clean


def test_processes_that_do_not_end_in_time_are_asked_for_their_stacks_and_killed_a_second_later(
    watch: Make,
) -> None:
    engine, front_end = Sleeper("engine-0", ignored="TERM USR1"), Sleeper("front_end-0", ignored="TERM USR2")
    children = watch(engine, front_end)
    children.handle_signal(signal.SIGTERM, 101.0)
    children.handle_signal(signal.SIGTERM, 110.0)  # does not prolong the end
    front_end.last_heartbeat_at = engine.last_heartbeat_at = 101.0 + LONGEST_END_S + 5
    children.check(101.0 + LONGEST_END_S)
    assert not front_end.is_signalled()
    children.check(101.1 + LONGEST_END_S)
    assert front_end.await_end() == -signal.SIGUSR1, "which a server answers with its stacks"
    children.check(102.0 + LONGEST_END_S)
    assert not engine.is_signalled()
    children.check(102.1 + LONGEST_END_S)
    assert engine.await_end() == -signal.SIGKILL
    children.check(102.3 + LONGEST_END_S)
    assert children.ended
    assert not children.clean
