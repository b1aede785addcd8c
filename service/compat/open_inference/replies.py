"""From replies and errors to responses of the Open Inference Protocol. Pure."""

from __future__ import annotations

import base64
import json
from typing import Any

from service.compat.open_inference.requests import OUTPUT, InferRequest
from service.compat.open_inference.tensors import as_elements, as_pixels
from service.core.errors import InvalidRequest, ServiceError
from service.core.reply import Reply


def infer_body(reply: Reply, request: InferRequest, max_pixels: int) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON if binary data follows it.

    The output is a file for each picture, or their pixels if the input came as pixels.
    """
    files = [picture.body for picture in reply.pictures]
    output: dict[str, Any] = {"name": OUTPUT, "datatype": "BYTES", "shape": [len(files)]}
    data = b""
    if request.as_pixels:
        data, shape = as_pixels(files, max_pixels)
        output |= {"datatype": "UINT8", "shape": [*shape]}
    elif request.binary_output:
        data = as_elements(files)
    if request.binary_output:
        output["parameters"] = {"binary_data_size": len(data)}
    else:
        output["data"] = [base64.b64encode(file).decode("ascii") for file in files]
    name, _, version = reply.model.partition("/")
    whole = {
        "model_name": name,
        "model_version": version,
        **({"id": request.id} if request.id else {}),
        **({"parameters": {"seed": reply.seed}} if reply.seed is not None else {}),
        "outputs": [output],
    }
    head = json.dumps(whole).encode("utf-8", "backslashreplace")
    return head + data, len(head) if request.binary_output else None


def check_output(request: InferRequest) -> None:
    """Check that the output can be sent as the request wants it.

    Raises:
        InvalidRequest: pixels would be sent as JSON.
    """
    if request.as_pixels and not request.binary_output:
        raise InvalidRequest("UINT8 is answered as binary data; ask for it with binary_data, or send BYTES")


def error_body(error: ServiceError) -> dict[str, Any]:
    """Return the body of an error."""
    return {"error": str(error), "code": error.code}
