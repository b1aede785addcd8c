"""Ray Serve: one replica behind the HTTP proxy, `serve.batch` for the batches."""

from __future__ import annotations

import asyncio

import ray
import work
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=4096, ray_actor_options={"num_cpus": 1})
class Inpaint:
    """Receives multipart and returns JPEG; batches compute in a thread, as Serve's documentation asks."""

    def __init__(self) -> None:
        self.model = work.load()

    @serve.batch(max_batch_size=work.MAX_BATCH, batch_wait_timeout_s=0.001)
    async def infer(self, data: list) -> list:
        return await asyncio.to_thread(self.model, [picture for picture, _ in data], [mask for _, mask in data])

    async def __call__(self, request: Request) -> Response:
        form = await request.form()
        mask = await form["mask"].read() if "mask" in form else None
        picture = await self.infer(work.decode(await form["image"].read(), mask))
        return Response(work.encode(picture), media_type="image/jpeg")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    serve.start(http_options={"host": "127.0.0.1", "port": work.port()})
    serve.run(Inpaint.bind(), route_prefix="/", blocking=True)
