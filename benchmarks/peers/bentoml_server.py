"""BentoML: a batchable API behind a wrapper service, as BentoML's documentation requires for two inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import bentoml
import work
from bentoml.validators import ContentType


@bentoml.service(workers=1, traffic={"timeout": 120, "max_concurrency": 4096})
class Model:
    """Computes the batches that BentoML forms."""

    def __init__(self) -> None:
        self.model = work.load()

    @bentoml.api(batchable=True, max_batch_size=work.MAX_BATCH, max_latency_ms=60_000)
    def infer(self, data: list[dict]) -> list[bytes]:
        decoded = [work.decode(item["image"], item.get("mask")) for item in data]
        filled = self.model([picture for picture, _ in decoded], [mask for _, mask in decoded])
        return [work.encode(picture) for picture in filled]


@bentoml.service(workers=1, traffic={"timeout": 120, "max_concurrency": 4096})
class Inpaint:
    """Receives the files of a request."""

    model = bentoml.depends(Model)

    @bentoml.api
    async def inpaint(self, image: Path, mask: Path) -> Annotated[bytes, ContentType("image/jpeg")]:
        return (await self.model.to_async.infer([_read(image=image, mask=mask)]))[0]

    @bentoml.api
    async def translate(self, image: Path) -> Annotated[bytes, ContentType("image/jpeg")]:
        return (await self.model.to_async.infer([_read(image=image)]))[0]


def _read(**files: Path) -> dict:
    return {name: path.read_bytes() for name, path in files.items()}
