"""Shards that arrive while a run is under way: decoded beside it and added to its pictures."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch

from training.data.device_cache import PictureCache
from training.data.pictures import Picture, load_pictures
from training.errors import DataMissing
from training.run_config import DataConfig

_LOOKS_EVERY_S = 1.0


class Arrivals:
    """Watches `data.path` for tar shards that were not there before; each must appear whole, by a rename.

    Shards that are there already make up the cache; at least one must come within `patience_s`.

    Raises:
        DataMissing: none came, or one cannot be read.
    """

    def __init__(self, data: DataConfig, patience_s: float = 60.0) -> None:
        self._data, self._seen = data, set[Path]()
        self._failure: DataMissing | None = None
        self._over = threading.Event()
        deadline = time.monotonic() + patience_s
        while not (first := self._new()):
            if time.monotonic() > deadline:
                raise DataMissing(f"{data.path}: no shard came within {patience_s:g} s; is data.path right?")
            time.sleep(0.2)
        self._first = first

    def cache(self, device: torch.device, room_bytes: float) -> PictureCache:
        """The pictures of the first shards, to which those of later ones are added."""
        cache = PictureCache(self._read(self._first), device, room_bytes)
        threading.Thread(target=self._watch, args=(cache,), name="arrivals", daemon=True).start()
        return cache

    def look(self, cache: PictureCache) -> None:
        """Add the pictures of shards that have come.

        Raises:
            DataMissing: one cannot be read, or there is no room for it.
        """
        for shard in self._new():
            cache.append(self._read([shard]))

    def check(self) -> None:
        """Raises: DataMissing: a shard that came could not be read, or did not fit."""
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Watch no longer."""
        self._over.set()

    def _watch(self, cache: PictureCache) -> None:
        try:
            while not self._over.wait(_LOOKS_EVERY_S):
                self.look(cache)
        except DataMissing as error:
            self._failure = error

    def _new(self) -> list[Path]:
        found = sorted(set(self._data.path.glob("*.tar")) - self._seen)
        self._seen |= set(found)
        return found

    def _read(self, shards: list[Path]) -> list[Picture]:
        return [picture for shard in shards for picture in load_pictures(self._data.model_copy(update={"path": shard}))]
