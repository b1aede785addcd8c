"""The real server on a full file system: results promised before exist, however it ends; no other is promised."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.fakes.disk import enlarge, fill, tmpfs
from tests.serving.served_process import ROOT, ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow

Files = dict[str, tuple[str, bytes, str]]
UNTIL_ROOM_IS_SEEN_S = 20.0
"""The disk is probed each second; the rest is for a busy machine."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "small", "8m") as folder:
        yield folder


@pytest.fixture
def dress() -> Files:
    """A photograph whose results take many blocks of a disk."""
    data = ROOT / "tests" / "data"
    return {
        "image": ("dress.jpg", (data / "dress.jpg").read_bytes(), "image/jpeg"),
        "mask": ("mask.png", (data / "dress_mask.png").read_bytes(), "image/png"),
    }


def check_all_there(served: ServedProcess, promised: dict[str, bytes]) -> None:
    for location, body in promised.items():
        found = httpx.get(f"{served.url}{location}")
        assert (found.status_code, found.content == body) == (200, True), location


def ask(served: ServedProcess, files: Files, promised: dict[str, bytes]) -> httpx.Response:
    reply = httpx.post(f"{served.url}/v1/inpaint", files=files, timeout=30)
    if "location" in reply.headers:
        promised[reply.headers["location"]] = reply.content
    return reply


def check_nothing_is_promised(served: ServedProcess, files: Files, promised: dict[str, bytes]) -> None:
    codes = [ask(served, files, promised).json().get("code") for _ in range(10)]
    assert codes == ["storage_unavailable"] * 10
    unready = httpx.get(f"{served.url}/readyz")
    assert unready.status_code == 503
    assert "No space left" in unready.json()["reasons"][0]
    for headers in ({"Prefer": "respond-async"}, {"Idempotency-Key": "one"}):
        refused = httpx.post(f"{served.url}/v1/inpaint", files=files, headers=headers)
        assert refused.json()["code"] in ("storage_unavailable", "ledger_unavailable")
        assert int(refused.headers["retry-after"]) > 0
    unsaved = httpx.post(f"{served.url}/v1/inpaint", files=files, data={"save": "false"})
    assert unsaved.status_code == 200
    assert "location" not in unsaved.headers


def refused_by_all(served: ServedProcess, files: Files, promised: dict[str, bytes], filler: Path) -> bool:
    """Fill the remaining space again; returns whether ten requests in a row are then refused."""
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return all(ask(served, files, promised).status_code == 503 for _ in range(10))


@pytest.mark.parametrize(("end", "workers"), [("room", 0), ("room", 2), ("SIGTERM", 0), ("SIGKILL", 0)])
def test_every_result_that_was_promised_before_the_disk_was_full_is_there_afterwards(
    small: Path, tmp_path: Path, files: Files, end: str, workers: int
) -> None:
    promised: dict[str, bytes] = {}
    served = ServedProcess(tmp_path, results_dir=small / "results", drain_timeout_s=2, workers=workers)
    with served:
        for _ in range(12):
            assert ask(served, files, promised).status_code == 200
        filler = fill(small)
        wait_until(lambda: ask(served, files, promised).status_code == 503)
        if workers:  # every front end has to notice the full disk
            wait_until(lambda: {httpx.get(f"{served.url}/readyz").status_code for _ in range(8)} == {503})
            # front ends free space as they save spooled results, so fill it until the disk stays full
            wait_until(lambda: refused_by_all(served, files, promised, filler))
        check_nothing_is_promised(served, files, promised)
        if end == "SIGKILL":
            served.kill()
            filler.unlink()
            served.start()
        elif end == "SIGTERM":
            served.terminate()
            filler.unlink()
            served.start()
        else:
            filler.unlink()
            wait_until(lambda: ask(served, files, promised).status_code == 200, UNTIL_ROOM_IS_SEEN_S)
            wait_until(lambda: httpx.get(f"{served.url}/readyz").status_code == 200, UNTIL_ROOM_IS_SEEN_S)
        check_all_there(served, promised)
        assert served.terminate() == 0
        served.start()
        check_all_there(served, promised)
    assert len(promised) >= 12


def test_a_disk_that_results_fill_holds_every_one_that_was_promised(tmp_path: Path, files: Files) -> None:
    promised: dict[str, bytes] = {}
    with tmpfs(tmp_path / "small", "2m") as small:
        served = ServedProcess(tmp_path, results_dir=small / "results", drain_timeout_s=2)
        with served:
            wait_until(lambda: ask(served, files, promised).status_code == 503)
            assert {ask(served, files, promised).status_code for _ in range(10)} <= {200, 503}
            check_all_there(served, promised)
            served.terminate()
            enlarge(small, "8m")
            served.start()
            check_all_there(served, promised)
            assert served.terminate() == 0
    assert len(promised) >= 3


def test_a_full_disk_is_emptied_by_deleting_results(tmp_path: Path, files: Files) -> None:
    promised: dict[str, bytes] = {}
    with (
        tmpfs(tmp_path / "small", "3m") as small,
        ServedProcess(tmp_path, results_dir=small / "results", drain_timeout_s=2) as served,
    ):
        wait_until((small / "results" / ".ledger.reserve").exists)
        wait_until(lambda: ask(served, files, promised).status_code == 503)
        fill(small)
        assert {httpx.delete(f"{served.url}{location}").status_code for location in promised} <= {202, 204}
        assert {httpx.get(f"{served.url}{location}").status_code for location in promised} == {410}
        (small / "filler").unlink()
        wait_until(lambda: ask(served, files, promised).status_code == 200)
        served.kill()
        served.start()
        assert {httpx.get(f"{served.url}{location}").status_code for location in promised} == {200, 410}
        assert served.terminate() == 0


def test_a_disk_full_of_results_that_are_only_in_the_spool_is_emptied_by_deleting_them(
    tmp_path: Path, dress: Files
) -> None:
    promised: dict[str, bytes] = {}
    with tmpfs(tmp_path / "small", "3m") as small:
        results = small / "results"
        with ServedProcess(tmp_path, results_dir=results, drain_timeout_s=2) as served:
            wait_until((results / ".ledger.reserve").exists)
            for number in range(256):
                (results / f"{number:02x}").touch()  # in place of its folder, so that nothing is saved
            wait_until(lambda: ask(served, dress, promised).status_code == 503)
            fill(small)
            for location in list(promised)[1:]:
                assert httpx.delete(f"{served.url}{location}").status_code == 202, "the storage may have a copy"
            wait_until(lambda: ask(served, dress, promised).status_code == 200, UNTIL_ROOM_IS_SEEN_S)
            served.kill()
            served.start()
            statuses = [httpx.get(f"{served.url}{location}").status_code for location in promised]
            assert (statuses[0], set(statuses[1:-1]), statuses[-1]) == (200, {410}, 200)
            for number in range(256):
                (results / f"{number:02x}").unlink()
            assert served.terminate() == 0
            kept = [location.rpartition("/")[2] for location in promised]
            assert {path.stem for path in results.glob("*/*.png")} == {kept[0], kept[-1]}


def test_results_that_were_saved_leave_the_spool_when_the_disk_is_full(tmp_path: Path, dress: Files) -> None:
    promised: dict[str, bytes] = {}
    with tmpfs(tmp_path / "small", "3m") as small:
        results = small / "results"
        with ServedProcess(tmp_path, results_dir=results, drain_timeout_s=2) as served:
            wait_until(lambda: ask(served, dress, promised).status_code == 503)
            wait_until(lambda: httpx.get(f"{served.url}/readyz").status_code == 200, UNTIL_ROOM_IS_SEEN_S)
            assert ask(served, dress, promised).status_code == 200
            check_all_there(served, promised)
            assert served.terminate() == 0


def listed(served: ServedProcess) -> set[str]:
    """Return the locations of all results that the server lists."""
    results = httpx.get(f"{served.url}/v1/results", params={"limit": 100}).json()["results"]
    return {f"/v1/results/{one['id']}" for one in results}


def stored(served: ServedProcess, promised: Iterable[str]) -> set[str]:
    """Return the locations whose results the server still has."""
    return {location for location in promised if httpx.get(f"{served.url}{location}").status_code == 200}


def test_a_full_disk_is_emptied_by_retention(tmp_path: Path, files: Files) -> None:
    promised: dict[str, bytes] = {}
    with tmpfs(tmp_path / "small", "3m") as small:
        with ServedProcess(tmp_path, results_dir=small / "results", drain_timeout_s=2) as served:
            wait_until(lambda: ask(served, files, promised).status_code == 503)
            fill(small)
            served.kill()
        with ServedProcess(tmp_path, results_dir=small / "results", results_max_gb=0.0005) as served:
            wait_until(lambda: ask(served, files, promised).status_code == 200)
            # results are indexed and removed in the background
            wait_until(lambda: listed(served) == stored(served, promised))
            assert 0 < len(listed(served)) < len(promised)
            assert served.terminate() == 0


def test_a_spool_on_a_full_file_system_of_its_own_is_unready_until_it_has_space(tmp_path: Path, dress: Files) -> None:
    """The results' file system, which has space, must not make it ready from each refused request to the next."""
    promised: dict[str, bytes] = {}
    with (
        tmpfs(tmp_path / "results", "16m") as folder,
        tmpfs(folder / ".spool", "1m") as spool,
        ServedProcess(tmp_path) as served,
    ):
        filler = fill(spool)
        assert ask(served, dress, promised).json()["code"] == "storage_unavailable"
        until = time.monotonic() + 3.5
        while time.monotonic() < until:
            check_nothing_is_promised(served, dress, promised)
        filler.unlink()
        wait_until(lambda: httpx.get(f"{served.url}/readyz").status_code == 200, UNTIL_ROOM_IS_SEEN_S)
        assert ask(served, dress, promised).status_code == 200
        check_all_there(served, promised)
        assert len(served.lines("the disk accepts results again")) == 1
