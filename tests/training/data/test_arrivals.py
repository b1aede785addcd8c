"""Shards that arrive while a run is under way."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from training.data.arrivals import ShardWatcher
from training.errors import DataMissing
from training.gather.shards import ShardWriter
from training.run_config import DataConfig

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_thread_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all later shards to the tests: the thread would take one, or its error, if a test paused for a second."""
    monkeypatch.setattr("training.data.arrivals._POLL_INTERVAL_S", 3600.0)


def shard(folder: Path, name: str, pictures: int) -> None:
    """Write a tar file, which appears in the folder complete."""
    with ShardWriter(folder / "aside", name, 2**30) as writer:
        for number in range(pictures):
            picture = np.full((16, 16, 3), number, np.uint8)
            writer.add(f"{number}.png", cv2.imencode(".png", picture)[1].tobytes())
    writer.paths[0].rename(folder / f"{name}.tar")


def data(folder: Path) -> DataConfig:
    return DataConfig(path=folder, layout="shards", load_side=16, crop=16, threads=1)


def test_a_shard_that_comes_later_takes_part(tmp_path: Path) -> None:
    shard(tmp_path, "first", 2)
    arrivals = ShardWatcher(data(tmp_path))
    cache = arrivals.cache(CPU, 1e6)
    assert cache.count == 2
    shard(tmp_path, "second", 3)
    (tmp_path / "._second.tar").write_bytes(b"what a Mac keeps of second.tar on a foreign disk")
    arrivals.add_arrived_shards(cache)
    assert cache.count == 5
    arrivals.add_arrived_shards(cache)
    assert cache.count == 5
    arrivals.close()


def test_a_broken_shard_is_named_by_the_run(tmp_path: Path) -> None:
    shard(tmp_path, "first", 1)
    arrivals = ShardWatcher(data(tmp_path))
    cache = arrivals.cache(CPU, 1e6)
    (tmp_path / "torn.tar").write_bytes(b"no tar")
    with pytest.raises(DataMissing, match="torn"):
        arrivals.add_arrived_shards(cache)
    arrivals.close()


def test_a_run_without_any_shard_does_not_wait_for_ever(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="no shard arrived"):
        ShardWatcher(data(tmp_path), timeout_s=0)
