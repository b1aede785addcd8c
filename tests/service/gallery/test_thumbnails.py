"""Thumbnails: their pixels and their storage; none outlives its result."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.core.pictures import Size
from service.gallery.thumbnails import SIDE, ThumbnailFiles, make_thumbnail, thumbnail_size
from service.saving.index import ResultIndex
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.own_folders import THUMBNAILS

ID = "ab" * 16


def encoded(pixels: np.ndarray, file_format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, file_format)
    return file.getvalue()


@pytest.mark.parametrize(
    ("size", "small"),
    [
        (Size(320, 320), Size(320, 320)),
        (Size(10, 20), Size(10, 20)),
        (Size(640, 320), Size(320, 160)),
        (Size(1, 10_000), Size(1, 320)),
    ],
)
def test_a_thumbnail_keeps_the_shape_and_is_never_larger(size: Size, small: Size) -> None:
    assert thumbnail_size(size) == small


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP"])
def test_a_thumbnail_shows_the_picture(file_format: str) -> None:
    pixels = np.zeros((700, 900, 3), np.uint8)
    pixels[:, 450:] = (250, 10, 20)
    shown = np.asarray(Image.open(io.BytesIO(make_thumbnail(encoded(pixels, file_format)))).convert("RGB")).astype(int)
    assert shown.shape == (249, SIDE, 3)
    assert np.abs(shown[100, 50] - (0, 0, 0)).max() < 12
    assert np.abs(shown[100, 250] - (250, 10, 20)).max() < 12


def test_grey_alpha_and_16_bits_are_kept_as_far_as_webp_holds_them() -> None:
    alpha = np.zeros((400, 400, 4), np.uint8)
    alpha[:200] = 255
    shown = Image.open(io.BytesIO(make_thumbnail(encoded(alpha))))
    assert (shown.mode, shown.getpixel((10, 10)), shown.getpixel((10, 300))[3]) == ("RGBA", (255, 255, 255, 255), 0)
    deep = np.full((400, 400), 65_535, np.uint16)
    shown = Image.open(io.BytesIO(make_thumbnail(encoded(deep))))
    assert shown.convert("RGB").getpixel((5, 5)) == (255, 255, 255)


def test_a_thumbnail_is_stored_until_it_is_dropped(tmp_path: Path, index: ResultIndex) -> None:
    files = ThumbnailFiles(tmp_path, index)
    assert files.find(ID) is None
    assert files.find("../../etc/passwd") is None
    assert files.keep(ID, b"small")
    assert files.find(ID) == b"small"
    files.drop(ID)
    files.drop(ID)
    assert files.find(ID) is None


class HalfWay(Disk):
    """A disk whose second write stops after half of its bytes until `go_on`; the first waits for it to get there."""

    def __init__(self) -> None:
        self._writes = iter((1, 2))
        self.begun, self.half, self.go_on = threading.Event(), threading.Event(), threading.Event()

    def write_soon(self, path: Path | str, data: bytes) -> None:
        if next(self._writes) == 1:
            super().write_soon(path, data)
            self.begun.set()
            assert self.half.wait(20)
            return
        super().write_soon(path, data[: len(data) // 2])
        self.half.set()
        assert self.go_on.wait(20)
        super().write_soon(path, data)


def test_a_thumbnail_that_two_clients_ask_for_at_once_is_complete_when_it_appears(
    tmp_path: Path, index: ResultIndex
) -> None:
    disk = HalfWay()
    files = ThumbnailFiles(tmp_path, index, disk)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(files.keep, ID, b"complete")
        assert disk.begun.wait(20)
        second = pool.submit(files.keep, ID, b"complete")
        assert first.result(20)
        found = files.find(ID)
        disk.go_on.set()
        assert second.result(20)
    assert found == files.find(ID) == b"complete"
    assert [path.name for path in (tmp_path / THUMBNAILS).rglob("*") if path.is_file()] == [f"{ID}.webp"]


def test_a_thumbnail_made_while_its_result_is_deleted_is_not_stored(tmp_path: Path, index: ResultIndex) -> None:
    files = ThumbnailFiles(tmp_path, index)
    index.bury(ID, "")
    assert not files.keep(ID, b"small")
    assert [path for path in (tmp_path / ".thumbnails").rglob("*") if path.is_file()] == []


def test_a_thumbnail_that_is_left_of_a_deleted_result_is_not_found(tmp_path: Path, index: ResultIndex) -> None:
    files = ThumbnailFiles(tmp_path, index)
    assert files.keep(ID, b"small")
    index.bury(ID, "")  # by a process that was killed before it removed the thumbnail
    assert files.find(ID) is None


def test_thumbnails_of_deleted_results_are_removed(tmp_path: Path, index: ResultIndex) -> None:
    files = ThumbnailFiles(tmp_path, index)
    other = "cd" * 16
    files.keep(ID, b"small")
    files.keep(other, b"small")
    assert files.drop_orphans(lambda ids: {other} & set(ids)) == 1
    assert (files.find(ID), files.find(other)) == (None, b"small")


@pytest.mark.parametrize("other", ["cd" * 16, "ab" + "f" * 30])
def test_a_thumbnail_that_cannot_be_removed_keeps_no_other(tmp_path: Path, index: ResultIndex, other: str) -> None:
    files = ThumbnailFiles(tmp_path, index)
    files.keep(other, b"small")
    stuck = tmp_path / THUMBNAILS / "ab" / f"{ID}.webp"
    stuck.mkdir(parents=True, exist_ok=True)  # which the server does not remove
    with pytest.raises(OSError, match=stuck.name):
        files.drop_orphans(lambda _: set())
    assert files.find(other) is None
