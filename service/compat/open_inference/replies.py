"""From replies and errors to responses of the Open Inference Protocol. Pure."""

from __future__ import annotations

from typing import Any

from service.core.errors import InvalidRequest, ServiceError
from service.core.reply import Reply
from service.intake.written_bodies import json_body
from service.open_inference.orders import output_of
from service.open_inference.requests import OUTPUT, InferRequest


def infer_body(reply: Reply, request: InferRequest, max_pixels: int) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON if binary data follows it.

    The output is a file for each picture, or their pixels if the input came as pixels.
    """
    data, output = b"", dict[str, Any]()
    if request.binary_output:
        made = output_of(reply, request, max_pixels)
        data, shape = made.data, [*made.shape]
        output = {"name": OUTPUT, "datatype": made.datatype, "shape": shape}
        output["parameters"] = {"binary_data_size": len(data)}
    else:
        files = [picture.body for picture in reply.pictures]
        output = {"name": OUTPUT, "datatype": "BYTES", "shape": [len(files)], "data": files}
    name, _, version = reply.model.partition("/")
    whole = {
        "model_name": name,
        "model_version": version,
        **({"id": request.id} if request.id else {}),
        **({"parameters": {"seed": reply.seed}} if reply.seed is not None else {}),
        "outputs": [output],
    }
    head = json_body(whole)
    return head + data if data else head, len(head) if request.binary_output else None


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
