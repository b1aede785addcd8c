"""From the JSON and the binary data of a body to an inference request. Pure."""

from __future__ import annotations

import msgspec

from service.compat.json_fields import JsonFields, parse_fields
from service.core.errors import InvalidRequest
from service.open_inference.requests import InferRequest, check_requested_outputs, priority_of, timeout_of
from service.open_inference.tensors import Tensor, element_of, file_tensor, pixel_tensor, refuse_shared_memory

_AS_BINARY = "send UINT8 as binary data, with binary_data_size (binary_data=True in clients), or BYTES"
"""Advice for pixels in JSON."""


def parse_infer_request(head: bytearray, binary: memoryview, max_pixels: int) -> InferRequest:
    """Parse the JSON of a request, and the binary data of its inputs in their order.

    Raises:
        InvalidRequest, TooLarge: the JSON or a tensor is wrong; the binary data is not what the JSON announces.
        InvalidOption: a parameter is out of range.
    """
    fields = parse_fields(head, _AS_BINARY)
    parameters = fields.nested("parameters")
    tensors = []
    for entry in fields.objects("inputs"):
        size = entry.nested("parameters").value("binary_data_size", int, -1)
        if size > len(binary):
            raise InvalidRequest(f"an input declares {size} bytes of binary data, but only {len(binary)} follow")
        tensors.append(_tensor_of(entry, binary[:size] if size >= 0 else None, max_pixels))
        binary = binary[max(size, 0) :]
    if len(binary):
        raise InvalidRequest(f"{len(binary)} bytes follow the data of the last input")
    return InferRequest(
        fields.value("id", str, ""),
        tuple(tensors),
        parameters,
        _wants_binary(fields, parameters),
        timeout_of(parameters.value("timeout", int, 0)),
        priority_of(parameters.value("priority", int, 0)),
    )


def _tensor_of(fields: JsonFields, binary: memoryview | None, max_pixels: int) -> Tensor:
    """Read an input from its JSON and, if it has any, its binary data."""
    name = fields.value("name", str, "")
    refuse_shared_memory(name, fields.nested("parameters"))
    datatype, shape = fields.value("datatype", str, ""), fields.value("shape", list[int], [])
    if datatype == "BYTES":
        return file_tensor(name, shape, lambda: _one_file(fields, name) if binary is None else element_of(binary, name))
    if binary is None and datatype == "UINT8":
        raise InvalidRequest(f"input {name[:80]!r}: {_AS_BINARY}")
    return pixel_tensor(name, datatype, shape, binary or b"", max_pixels)


def _one_file(fields: JsonFields, name: str) -> bytes:
    data = fields.listed("data")
    if len(data) == 1 and bytes(memoryview(data[0])[:1]) == b"[":  # [[file]] is the nested form of shape [1, 1]
        data = msgspec.json.decode(data[0], type=list[msgspec.Raw])
    if len(data) != 1:
        raise InvalidRequest(f"input {name[:80]!r}: `data` has {len(data)} elements; send one file in base64")
    return fields.file(data[0], name[:80])


def _wants_binary(fields: JsonFields, parameters: JsonFields) -> bool:
    default = parameters.value("binary_data_output", bool, False)
    outputs = fields.objects("outputs")
    if not outputs:
        return default
    requested = outputs[0].nested("parameters")
    names = [output.value("name", str, "") for output in outputs]
    check_requested_outputs(names, requested, classes=requested.value("classification", int, 0))
    return requested.value("binary_data", bool, default)
