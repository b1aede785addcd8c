"""Builders of inference requests in the form that tritonclient sends."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import httpx

LENGTH = "Inference-Header-Content-Length"


def element(data: bytes) -> bytes:
    """Return the binary data of a BYTES tensor with one element."""
    return struct.pack("<I", len(data)) + data


def as_binary(
    inputs: dict[str, tuple[str, list[int], bytes]], parameters: dict[str, Any] | None = None, **fields: Any
) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a request with binary tensors after its JSON: name → datatype, shape, data."""
    entries = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, (datatype, shape, data) in inputs.items()
    ]
    head = json.dumps({"inputs": entries, "parameters": parameters or {"binary_data_output": True}, **fields}).encode()
    return head + b"".join(data for _, _, data in inputs.values()), {LENGTH: str(len(head))}


def of_files(image: bytes, mask: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    return {"image": ("BYTES", [1], element(image)), "mask": ("BYTES", [1], element(mask))}


def as_json(image: bytes, mask: bytes, **fields: Any) -> dict[str, Any]:
    """Return a request without binary data."""
    entries = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(data).decode()]}
        for name, data in (("image", image), ("mask", mask))
    ]
    return {"inputs": entries, **fields}


def parts_of(reply: httpx.Response) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the binary data of a response."""
    assert reply.status_code == 200, reply.text
    length = int(reply.headers[LENGTH])
    return json.loads(reply.content[:length]), reply.content[length:]


def failures(client: httpx.Client) -> int:
    """Return how many requests of any API the model `photos` has failed, as Open Inference counts them."""
    count: int = client.get("/v2/models/photos/stats").json()["model_stats"][0]["inference_stats"]["fail"]["count"]
    return count
