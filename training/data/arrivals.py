"""Tar shards that arrive during a run: a background thread decodes them and adds their pictures to the run's."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch

from training.data.device_cache import PictureCache
from training.data.picture_files import shard_paths
from training.data.pictures import Picture, load_pictures
from training.errors import DataMissing
from training.run_config import DataConfig

_POLL_INTERVAL_S = 1.0


class ShardWatcher:
    """Watches `data.path` for new tar shards, each of which must be renamed into place once it is complete.

    The first shards fill the cache; at least one must arrive within `timeout_s` seconds.

    Raises:
        DataMissing: no shard arrived in time.
    """

    def __init__(self, data: DataConfig, timeout_s: float = 60.0) -> None:
        self._data, self._seen = data, set[Path]()
        self._failure: DataMissing | None = None
        self._over = threading.Event()
        deadline = time.monotonic() + timeout_s
        while not (first := self._new_shards()):
            if time.monotonic() > deadline:
                raise DataMissing(f"{data.path}: no shard arrived within {timeout_s:g} s; is data.path right?")
            time.sleep(0.2)
        self._first = first

    def cache(self, device: torch.device, room_bytes: float) -> PictureCache:
        """Return a cache with the pictures of the first shards; a thread adds the pictures of later ones.

        Args:
            device: the device of the cache.
            room_bytes: device memory for the pictures of all shards.

        Raises:
            DataMissing: a shard cannot be read, or the pictures exceed `room_bytes` or the device's memory.
        """
        cache = PictureCache(self._read_shards(self._first), device, room_bytes)
        threading.Thread(target=self._watch_folder, args=(cache,), name="arrivals", daemon=True).start()
        return cache

    def add_arrived_shards(self, cache: PictureCache) -> None:
        """Add the pictures of shards that have arrived.

        Raises:
            DataMissing: a shard cannot be read or does not fit the cache.
        """
        for shard in self._new_shards():
            cache.append(self._read_shards([shard]))

    def raise_failure(self) -> None:
        """Raise the error that ended the watching thread, if any.

        Raises:
            DataMissing: a shard could not be read or did not fit the cache.
        """
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch_folder(self, cache: PictureCache) -> None:
        try:
            while not self._over.wait(_POLL_INTERVAL_S):
                self.add_arrived_shards(cache)
        except DataMissing as error:
            self._failure = error

    def _new_shards(self) -> list[Path]:
        found = [path for path in shard_paths(self._data.path) if path not in self._seen]
        self._seen |= set(found)
        return found

    def _read_shards(self, shards: list[Path]) -> list[Picture]:
        return [picture for shard in shards for picture in load_pictures(self._data.model_copy(update={"path": shard}))]
