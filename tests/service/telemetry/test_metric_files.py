"""Metrics of several processes, in files on a disk that is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from service.telemetry.metric_files import RETRY_S, MetricFile
from tests.fakes.clock import Clock
from tests.fakes.disk import fill, tmpfs

ROOT = Path(__file__).parents[3]
MANY = 500
"""Values that do not fit into a new file."""
COUNTING = """
import sys
from pathlib import Path
from service.telemetry.metrics import Metrics
from tests.fakes.disk import fill

folder, first = Path(sys.argv[1]), sys.argv[2]
if first == "fill":
    fill(folder)
metrics = Metrics()
fill(folder)
for number in range(40):
    metrics.request_done(f"/v1/{number}", "photos/5", 200, 0.1)
metrics.refresh()
print(metrics.exposition().decode().count("retouch_request_duration_seconds_count"))
"""


def values_in(path: Path) -> dict[str, float]:
    return {str(key): value for key, value, *_ in MmapedDict.read_all_values_from_file(str(path))}  # type: ignore[no-untyped-call]


def write_many(file: MetricFile, value: float = 1.0) -> dict[str, float]:
    for number in range(MANY):
        file.write_value(f"a value with a long name, number {number:04d}" + 100 * ".", value, 0.0)
    return {f"a value with a long name, number {number:04d}" + 100 * ".": value for number in range(MANY)}


@pytest.mark.parametrize("first", ["count", "fill"])
def test_a_process_goes_on_counting_and_another_starts_when_the_disk_of_its_metrics_is_full(
    tmp_path: Path, first: str
) -> None:
    with tmpfs(tmp_path / "small", "2m") as folder:
        environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
        command = [sys.executable, "-c", COUNTING, str(folder), first]
        done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].isdigit(), "the metrics that are on the disk can be read"


def test_a_file_grows_with_its_values_and_takes_its_space_at_once(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    with closing(MetricFile(str(path))) as file:
        assert path.stat().st_blocks * 512 >= path.stat().st_size > 0
        expected = write_many(file)
        assert values_in(path) == expected
    assert path.stat().st_blocks * 512 >= path.stat().st_size > sum(map(len, expected))
    assert list(tmp_path.iterdir()) == [path]


def test_values_of_a_full_disk_are_in_the_file_once_there_is_space(tmp_path: Path) -> None:
    clock = Clock()
    with tmpfs(tmp_path / "small", "1m") as folder, closing(MetricFile(f"{folder}/counter_1.db", now=clock)) as file:
        path = folder / "counter_1.db"
        file.write_value("early", 1.0, 0.0)
        filler = fill(folder)
        expected = {"early": 1.0, **write_many(file)}
        assert values_in(path).items() < expected.items()
        assert set(folder.iterdir()) == {path, filler}
        filler.unlink()
        file.write_value("early", 2.0, 0.0)
        assert values_in(path)["early"] == 1.0, "the disk is not asked at every value"
        clock.now += RETRY_S
        file.write_value("early", 3.0, 0.0)
        assert values_in(path) == {**expected, "early": 3.0}


def test_a_process_that_starts_on_a_full_disk_leaves_no_file_that_others_could_not_read(tmp_path: Path) -> None:
    clock = Clock()
    with tmpfs(tmp_path / "small", "1m") as folder:
        filler = fill(folder)
        with closing(MetricFile(f"{folder}/counter_1.db", now=clock)) as file:
            file.write_value("value", 1.0, 0.0)
            assert list(folder.iterdir()) == [filler]
            filler.unlink()
            clock.now += RETRY_S
            file.write_value("value", 2.0, 0.0)
        assert values_in(folder / "counter_1.db") == {"value": 2.0}


def test_a_file_that_another_program_removed_is_made_again_with_its_values(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "counter_1.db"
    with closing(MetricFile(str(path), now=clock)) as file:
        file.write_value("early", 1.0, 0.0)
        path.unlink()
        clock.now += RETRY_S
        file.write_value("late", 2.0, 0.0)
        assert values_in(path) == {"early": 1.0, "late": 2.0}
        made = path.stat().st_ino
        clock.now += RETRY_S
        file.write_value("late", 3.0, 0.0)
        assert path.stat().st_ino == made, "a file that is there stays"


def test_a_file_is_stored_again_though_its_values_do_not_change(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "counter_1.db"
    with closing(MetricFile(str(path), now=clock)) as file:
        file.write_value("value", 1.0, 0.0)
        path.unlink()
        file.store_if_missing()
        assert not path.exists(), "the disk is not asked every time"
        clock.now += RETRY_S
        file.store_if_missing()
        assert values_in(path) == {"value": 1.0}


@pytest.mark.parametrize("starting", [False, True])
def test_nothing_is_written_where_another_user_has_put_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: bool
) -> None:
    clock, folder, precious = Clock(), tmp_path / "metrics", tmp_path / "precious"
    precious.write_bytes(b"a file of the server's user")
    folder.mkdir()
    path = folder / "counter_1.db"
    with closing(MetricFile(str(path), now=clock)) as file:
        file.write_value("value", 1.0, 0.0)
        shutil.rmtree(folder)
        folder.mkdir()
        for name in (path.name, f"{path.name}.new"):
            (folder / name).symlink_to(precious)
        if not starting:
            path.unlink()
        with monkeypatch.context() as another:
            another.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
            clock.now += RETRY_S
            with closing(MetricFile(str(path), now=clock)) if starting else nullcontext(file) as writing:
                writing.write_value("value", 2.0, 0.0)
        assert precious.read_bytes() == b"a file of the server's user"


@pytest.mark.parametrize("starting", [False, True])
def test_a_link_to_another_file_is_not_followed(tmp_path: Path, starting: bool) -> None:
    path, precious = tmp_path / "counter_1.db", tmp_path / "precious"
    precious.write_bytes(b"precious")
    (path if starting else path.with_name(f"{path.name}.new")).symlink_to(precious)
    with closing(MetricFile(str(path))) as file:
        file.write_value("value", 1.0, 0.0)
    assert precious.read_bytes() == b"precious"


def test_a_process_goes_on_counting_when_the_folder_of_its_metrics_is_removed(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "metrics"
    folder.mkdir()
    with closing(MetricFile(f"{folder}/counter_1.db", now=clock)) as file:
        shutil.rmtree(folder)
        clock.now += RETRY_S
        expected = write_many(file)
        assert {key: file.read_value(key)[0] for key in expected} == expected


def test_a_process_with_the_id_of_a_dead_one_goes_on_with_its_counters(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    with closing(MetricFile(str(path))) as first:
        expected = write_many(first, 7.0)
    key = next(iter(expected))
    with closing(MetricFile(str(path))) as second:
        assert second.read_value(key) == (7.0, 0.0)
        second.write_value(key, 8.0, 0.0)
    assert values_in(path) == {**expected, key: 8.0}
