"""The run directory is removed at the server's end; a killed server's is removed at the next start."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.processes.launcher.run_directory import RunDirectory
from service.telemetry.metric_files import MetricFile
from tests.fakes.captured_logs import capture_logs


def is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_it_is_removed_at_the_end(short_folder: Path) -> None:
    with RunDirectory.create(short_folder) as run, run.listen_for_engine(1):
        assert sorted(path.name for path in run.path.iterdir()) == ["engine-1.sock", "lock", "metrics"]
        assert run.path.stat().st_mode & 0o077 == 0, "nobody else may connect"
    assert list(short_folder.iterdir()) == []


def test_the_end_is_not_disturbed_if_someone_else_has_removed_it(short_folder: Path) -> None:
    with RunDirectory.create(short_folder) as run:
        shutil.rmtree(run.path)


def test_what_a_killed_server_left_is_removed_and_a_living_one_is_left_alone(short_folder: Path) -> None:
    dead = short_folder / "retouch-run-dead"
    dead.mkdir()
    (dead / "lock").touch()
    with RunDirectory.create(short_folder) as living:
        assert not dead.exists()
        inherited = os.dup(living.lock)  # as a process that outlives the launcher holds it
        with RunDirectory.create(short_folder) as second:
            assert living.path.exists()
            assert second.path != living.path
        os.close(inherited)


def test_servers_that_start_at_the_same_time_leave_each_other_alone(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    others: list[RunDirectory] = []

    def lock_late(descriptor: int, mode: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        others.append(RunDirectory.create(short_folder))  # created before the first has its lock
        lock(descriptor, mode)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with RunDirectory.create(short_folder) as first, others[0] as second:
        assert first.path.exists()
        assert second.path.exists()


def test_a_folder_without_a_lock_is_left_alone(short_folder: Path) -> None:
    foreign = short_folder / "retouch-run-foreign"
    foreign.mkdir()
    with RunDirectory.create(short_folder):
        assert foreign.exists()


def test_its_lock_is_held_by_each_process_that_inherits_it(short_folder: Path) -> None:
    run = RunDirectory.create(short_folder)
    inherited = os.dup(run.lock)
    os.close(run.lock)
    assert is_locked(run.path / "lock")
    os.close(inherited)


def test_programs_that_remove_old_temporary_files_find_it_locked_until_its_end(short_folder: Path) -> None:
    with RunDirectory.create(short_folder) as run:
        assert is_locked(run.path)
        directory = os.open(run.path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(directory)


def connects(run: RunDirectory, index: int, listener: socket.socket) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(run.socket_paths[index])
        listener.settimeout(10)
        accepted, _ = listener.accept()
        with accepted:
            client.sendall(b"x")
            return accepted.recv(1) == b"x"


def test_its_sockets_are_found_after_someone_else_has_removed_it(short_folder: Path) -> None:
    with (
        RunDirectory.create(short_folder) as run,
        run.listen_for_engine(0) as first,
        run.listen_for_engine(1) as second,
    ):
        shutil.rmtree(run.path)
        assert connects(run, 0, first)
        assert connects(run, 1, second)


def test_the_folder_for_temporary_files_may_have_a_longer_name_than_a_socket(short_folder: Path) -> None:
    parent = short_folder / ("x" * 200)
    parent.mkdir()
    with RunDirectory.create(parent) as run, run.listen_for_engine(63) as listener:
        assert connects(run, 0, listener)


@pytest.mark.parametrize("removed", range(4))
def test_what_a_server_left_that_was_killed_while_it_removed_it_is_removed_at_the_next_start(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    unlink, left = os.unlink, iter(range(removed, -1, -1))

    def unlink_until_killed(path: str | Path, *, dir_fd: int | None = None) -> None:
        if next(left) == 0:
            raise KeyboardInterrupt  # SIGKILL
        unlink(path, dir_fd=dir_fd)

    run = RunDirectory.create(short_folder)
    with run.listen_for_engine(0), run.listen_for_engine(1):
        (run.path / "metrics" / "counter_1.db").touch()
        with monkeypatch.context() as killed:
            killed.setattr(os, "unlink", unlink_until_killed)
            killed.setattr(Path, "unlink", unlink_until_killed)  # in CPython 3.10 it does not call os.unlink
            with pytest.raises(KeyboardInterrupt), run:
                pass
    os.close(run.lock)
    assert run.path.exists()
    with RunDirectory.create(short_folder):
        assert not run.path.exists()


def is_complete(run: RunDirectory) -> bool:
    run.make_again()
    try:
        list(run.combined_metrics().collect())
    except NotReady:
        return False
    return True


def test_one_that_was_removed_is_made_again_and_complete_once_it_has_all_files_of_metrics(short_folder: Path) -> None:
    with RunDirectory.create(short_folder) as run:
        files = [run.path / "metrics" / f"{kind}_1.db" for kind in ("counter", "histogram", "gauge_livesum")]
        for file in files:
            MetricFile(str(file)).close()
        assert is_complete(run)
        shutil.rmtree(run.path)
        assert not is_complete(run)
        assert run.path.stat().st_mode & 0o077 == 0
        assert is_locked(run.path)
        assert is_locked(run.path / "lock")
        for file in files[:2]:
            MetricFile(str(file)).close()
        assert not is_complete(run)
        run.forget_metrics(1)  # the process has ended: its counters stay in the sums, its gauges do not
        assert is_complete(run)
    assert list(short_folder.iterdir()) == []


def test_metrics_are_incomplete_while_one_of_their_files_is_missing(short_folder: Path) -> None:
    with RunDirectory.create(short_folder) as run, capture_logs() as lines:
        files = [run.path / "metrics" / f"{kind}_1.db" for kind in ("counter", "gauge_livesum")]
        for file in files:
            MetricFile(str(file)).close()
        assert is_complete(run)
        for file in files:
            file.unlink()
            assert [is_complete(run) for _ in range(3)] == [False] * 3
            MetricFile(str(file)).close()
            assert is_complete(run)
        run.forget_metrics(1)
        assert is_complete(run), "the launcher itself removes the gauges of a process that has ended"
    assert [line["log_level"] for line in lines if line["log_level"] != "debug"] == ["warning", "info"] * 2


@pytest.mark.parametrize("has_lock", [False, True])
def test_one_of_which_a_part_was_removed_gets_it_again(short_folder: Path, has_lock: bool) -> None:
    with RunDirectory.create(short_folder) as run:
        shutil.rmtree(run.path / "metrics")
        if not has_lock:
            (run.path / "lock").unlink()
        assert is_complete(run) or is_complete(run)
        assert is_locked(run.path / "lock")


def test_nothing_is_put_in_place_of_what_another_user_has_put_there(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunDirectory.create(short_folder) as run:
        shutil.rmtree(run.path)
        run.path.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: run.path.stat().st_uid + 1)
        assert not is_complete(run)
        assert list(run.path.iterdir()) == []
        (run.path / "metrics").mkdir()
        assert not is_complete(run), "what another user has put there is not read, either"
        (run.path / "metrics").rmdir()
        run.path.rmdir()
        run.path.touch()
        assert not is_complete(run)
        run.path.unlink()
