"""Entries for the batcher's queue; their models are never computed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, Entry
from service.core.batch_rows import ComputedSample, Sample
from service.core.pictures import Size


@dataclass(frozen=True)
class StubManifest:
    key: str = "photos/1"
    max_batch: int = 8
    onnx_sha256: str = ""


@dataclass(eq=False)
class StubEngine:
    device: str = "cpu"


def model(key: str = "photos/1", max_batch: int = 8, device: str = "cpu") -> ServedModel:
    return ServedModel(cast("Manifest", StubManifest(key, max_batch)), cast("Any", StubEngine(device)))


def sample(side: int = 64) -> Sample:
    return Sample(Size(side, side), {})


def computed(batch: list[Entry]) -> list[tuple[Entry, Any]]:
    return [(entry, ComputedSample(np.zeros((1, 1, 3), np.uint8), len(batch), 0.0, 0.0, 0.0)) for entry in batch]


async def queued(batcher: Batcher, *requests: tuple[Sample, ServedModel, float]) -> list[asyncio.Task[ComputedSample]]:
    tasks = [asyncio.create_task(batcher.submit(*request)) for request in requests]
    await asyncio.sleep(0)
    return tasks
