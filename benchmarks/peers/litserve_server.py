"""LitServe: JSON with base64, as in LitServe's documentation (form files cannot be sent to its workers)."""

from __future__ import annotations

import base64

import litserve
import work
from fastapi import Response


class Inpaint(litserve.LitAPI):
    """One worker process that decodes, computes and encodes."""

    def setup(self, device: str) -> None:  # noqa: ARG002 -- LitServe passes it by name
        self.model = work.load()

    def decode_request(self, request) -> tuple:
        mask = request.get("mask")
        return work.decode(base64.b64decode(request["image"]), base64.b64decode(mask) if mask else None)

    def predict(self, data: list) -> list:
        return self.model([picture for picture, _ in data], [mask for _, mask in data])

    def batch(self, inputs: list) -> list:
        return inputs

    def unbatch(self, output: list) -> list:
        return output

    def encode_response(self, output: object) -> Response:
        return Response(work.encode(output), media_type="image/jpeg")


if __name__ == "__main__":
    api = Inpaint(max_batch_size=work.MAX_BATCH, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=120)
    server.run(host="127.0.0.1", port=work.port(), num_api_servers=1, generate_client_file=False, log_level="warning")
