"""mosec: one worker with (de)serialisation; mosec's Rust front end forms the batches."""

from __future__ import annotations

import msgspec
import work
from mosec import Server, Worker


class Inference(Worker):
    """Decodes, computes and encodes: mosec calls `deserialize` and `serialize` around `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = work.load()
        self.resp_mime_type = "image/jpeg"

    def deserialize(self, data: bytes) -> tuple:
        parts = msgspec.msgpack.decode(data)
        return work.decode(parts["image"], parts.get("mask"))

    def forward(self, data: list[tuple]) -> list:
        return self.model([picture for picture, _ in data], [mask for _, mask in data])

    def serialize(self, data: object) -> bytes:
        return work.encode(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Inference, num=1, max_batch_size=work.MAX_BATCH, max_wait_time=1, timeout=120)
    server.run()
