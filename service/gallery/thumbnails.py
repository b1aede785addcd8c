"""Thumbnails of results: made when they are first requested, and kept beside the results, `.thumbnails/ab/ID.webp`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import cv2
import numpy as np

from service.admission.large_and_small_shares import Claim
from service.admission.memory_budget import MemoryBudget
from service.core.flow import Flow
from service.core.pictures import Picture, Pixels, Size
from service.imaging.files import codec
from service.imaging.files.header import read_header
from service.imaging.files.pixels import to_8_bits
from service.imaging.pool.codec_work import CodecWork
from service.imaging.pool.parallel_steps import StepRunner, run_sequentially
from service.imaging.tasks import estimate_cost
from service.saving.index import ResultIndex
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.own_folders import THUMBNAILS
from service.saving.reader import ResultReader
from service.saving.storage.contract import is_result_id

SIDE = 320
"""The longest side of a thumbnail in pixels: a grid of 160 CSS pixels on a screen of twice that density."""
MEDIA_TYPE = "image/webp"
_QUALITY = 80
_MAX_PIXELS = 2**40
"""No limit: a result was within the limits when it was made."""


def thumbnail_size(size: Size) -> Size:
    """The size of a thumbnail: the longest side is `SIDE` pixels; smaller pictures keep their size."""
    scale = min(1.0, SIDE / max(size))
    return Size(max(1, round(size.height * scale)), max(1, round(size.width * scale)))


def make_thumbnail(body: bytes, run_steps: StepRunner = run_sequentially) -> bytes:  # noqa: ARG001 -- of a codec thread
    """Return the thumbnail of an encoded picture: WebP with 8 bits, its alpha and its colour profile.

    Raises:
        ServiceError: the picture cannot be decoded.
    """
    picture = codec.decode(body, max_pixels=_MAX_PIXELS)
    size = thumbnail_size(picture.size)
    alpha = None if picture.alpha is None else _scaled(picture.alpha[:, :, None], size)[:, :, 0]
    return codec.encode(Picture(_scaled(picture.pixels, size), alpha, picture.icc), "webp", _QUALITY)


def _scaled(pixels: Pixels, size: Size) -> Pixels:
    scaled = cv2.resize(to_8_bits(pixels), (size.width, size.height), interpolation=cv2.INTER_AREA)
    return np.asarray(scaled, np.uint8).reshape(*size, pixels.shape[2])


class ThumbnailFiles:
    """Thumbnails under one directory. All methods block; files are complete when they appear, and not synced."""

    def __init__(self, directory: Path, index: ResultIndex, disk: Disk | None = None) -> None:
        self._directory = directory / THUMBNAILS
        self._index = index
        self._disk = disk or Disk()

    def find(self, result_id: str) -> bytes | None:
        """Return the thumbnail of a result; None if none is kept, or the result is deleted.

        Raises:
            NotReady: code `ledger_unavailable`.
        """
        if not is_result_id(result_id) or self._index.deleted((result_id,)):
            return None
        try:
            return self._path(result_id).read_bytes()
        except OSError:
            return None

    def keep(self, result_id: str, thumbnail: bytes) -> bool:
        """Keep a thumbnail, unless the disk is full or failing; False if its result is deleted.

        Raises:
            NotReady: code `ledger_unavailable`; nothing is kept.
        """
        path = self._path(result_id)
        temporary = path.with_suffix(f".{uuid4().hex}.new")  # others may make the same thumbnail now
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._disk.write_soon(temporary, thumbnail)
            self._disk.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        kept = False
        try:
            kept = not self._index.deleted((result_id,))
        finally:  # checked after the write: a deletion during it has not seen the file
            if not kept:
                self.drop(result_id)
        return kept

    def drop(self, result_id: str) -> None:
        """Remove the thumbnail of a result, finished or not.

        Raises:
            OSError: the thumbnail cannot be removed now.
        """
        path = self._path(result_id)
        path.unlink(missing_ok=True)
        for unfinished in path.parent.glob(f"{result_id}.*.new"):
            unfinished.unlink(missing_ok=True)

    def drop_orphans(self, known: Callable[[list[str]], set[str]]) -> int:
        """Remove the thumbnails of results that no longer exist; returns how many.

        Args:
            known: returns the ids of existing results among the given ones.

        Raises:
            OSError: a folder cannot be listed, or a file not removed; raised after all others were.
        """
        dropped, failed = 0, list[OSError]()
        for shard in sorted(self._directory.glob("[0-9a-f][0-9a-f]")):
            try:
                ids = sorted({path.name[:32] for path in shard.iterdir() if is_result_id(path.name[:32])})
            except OSError as error:
                failed.append(error)
                continue
            for result_id in sorted(set(ids) - known(ids)):
                try:
                    self.drop(result_id)
                    dropped += 1
                except OSError as error:  # noqa: PERF203 -- one file must not stop the others
                    failed.append(error)
        if failed:
            raise failed[0]
        return dropped

    def _path(self, result_id: str) -> Path:
        return self._directory / result_id[:2] / f"{result_id}.webp"


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """Thumbnails of results, from the files or made now. Used on the event loop."""

    files: ThumbnailFiles
    results: ResultReader
    codec_work: CodecWork
    memory: MemoryBudget
    clock: Callable[[], float]
    allowed_s: float
    """Longest wait for memory to decode into, in seconds."""

    async def get(self, result_id: str, flow: Flow) -> bytes | None:
        """Return a thumbnail; None if the result does not exist or was deleted.

        Args:
            result_id: the id of the result.
            flow: the flow of the request, whose share of the memory is used.

        Raises:
            Overloaded: the wait for memory would be too long.
            NotReady, ServiceError: the result cannot be read now, or is damaged.
        """
        if (kept := await asyncio.to_thread(self.files.find, result_id)) is not None:
            return kept
        found = await self.results.image(result_id)
        if found is None:
            return None
        body = found[0]
        header = read_header(body, max_pixels=_MAX_PIXELS)
        weight = estimate_cost({"image": body}, {"image": header})
        claim = Claim(weight.decoded_bytes, flow, weight.large, self.clock() + self.allowed_s, self.allowed_s)
        async with self.memory.share(claim):
            made = await self.codec_work.run_decoding(partial(make_thumbnail, body), weight.effort, large=weight.large)
        kept_now = await asyncio.to_thread(self.files.keep, result_id, made)
        return made if kept_now else None
