"""From the body of an inference request to tensors and options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.manifest import Manifest
from service.compat.json_fields import JsonFields, parse_fields
from service.compat.open_inference.tensors import Tensor, read_tensor
from service.compat.options import options_of
from service.core.errors import InvalidOption, InvalidRequest
from service.core.flow import HIGHEST_PRIORITY
from service.core.schemas import OPTIONS, Options
from service.web.request_headers import MAX_TIMEOUT_MS

OUTPUT = "output"
"""The name of the only output."""
_NOT_PARAMETERS = frozenset({"model", "webhook", "webhook_events"})
_OWN_PARAMETERS = frozenset({"timeout", "priority", "binary_data_output"})


@dataclass(frozen=True, slots=True)
class InferRequest:
    """An inference request.

    timeout_s: seconds from arrival; None if the client named none. priority: 0 (last) to 9 (first), or None.
    """

    id: str
    tensors: tuple[Tensor, ...]
    parameters: JsonFields
    binary_output: bool
    timeout_s: float | None
    priority: int | None

    @property
    def as_pixels(self) -> bool:
        """Whether the output is UINT8, as the input is."""
        return any(tensor.name == "image" and tensor.datatype == "UINT8" for tensor in self.tensors)


def infer_request_of(head: bytearray, binary: memoryview, max_pixels: int) -> InferRequest:
    """Parse the JSON of a request, and the binary data of its inputs in their order.

    Raises:
        InvalidRequest, TooLarge: the JSON or a tensor is wrong; the binary data is not what the JSON announces.
        InvalidOption: a parameter is out of range.
    """
    fields = parse_fields(head)
    parameters = fields.nested("parameters")
    tensors = []
    for entry in fields.objects("inputs"):
        size = entry.nested("parameters").value("binary_data_size", int, -1)
        if size > len(binary):
            raise InvalidRequest(f"an input announces {size} bytes of binary data and {len(binary)} are left")
        tensors.append(read_tensor(entry, binary[:size] if size >= 0 else None, max_pixels))
        binary = binary[max(size, 0) :]
    if len(binary):
        raise InvalidRequest(f"{len(binary)} bytes follow the data of the last input")
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise InvalidRequest("an input is sent twice; send it once", code="repeated_part")
    return InferRequest(
        fields.value("id", str, ""),
        tuple(tensors),
        parameters,
        _wants_binary(fields, parameters),
        timeout_of(parameters.value("timeout", int, 0)),
        priority_of(parameters.value("priority", int, 0)),
    )


def options_for(manifest: Manifest, model: str, request: InferRequest) -> tuple[Options, frozenset[str]]:
    """Return the options of a request for a model, and the names of parameters that have no effect.

    Raises:
        InvalidOption: a parameter is out of range.
    """
    kind = OPTIONS[manifest.task]
    known = set(kind.model_fields) - _NOT_PARAMETERS
    values: dict[str, Any] = {name: request.parameters.scalar(name) for name in known & set(request.parameters)}
    ignored = frozenset(set(request.parameters) - known - _OWN_PARAMETERS)
    if request.as_pixels:
        values["format"] = "png"  # pixels are wanted, so no other format may lose some
    return options_of(kind, {"format": "png", **values, "model": model}), ignored


def check_inputs(tensors: tuple[Tensor, ...], known: Mapping[str, bool], model: str) -> None:
    """Check that a model takes these inputs and that none is missing.

    Args:
        tensors: the inputs.
        known: the names that the model takes, and whether each is required.
        model: its name, for messages.

    Raises:
        InvalidRequest: an input is unknown, or missing.
    """
    names = {tensor.name for tensor in tensors}
    if unknown := sorted(names - set(known)):
        raise InvalidRequest(f"{model} takes no input {unknown[0][:80]!r}; it takes {', '.join(known) or 'none'}")
    if missing := [name for name, required in known.items() if required and name not in names]:
        raise InvalidRequest(f"the input {missing[0]!r} is missing", code="missing_part")


def timeout_of(microseconds: int) -> float | None:
    """Return the client's timeout in seconds; None for 0, which means that there is none.

    Raises:
        InvalidOption: it is negative or over a day.
    """
    if not 0 <= microseconds <= MAX_TIMEOUT_MS * 1e3:
        raise InvalidOption(f"timeout: send microseconds, 0 to {MAX_TIMEOUT_MS * 1e3:.0f}")
    return microseconds / 1e6 or None


def priority_of(level: int) -> int | None:
    """Return the priority of a request; 1 is the highest level, and those from 10 on share the lowest.

    Raises:
        InvalidOption: it is negative.
    """
    if level < 0:
        raise InvalidOption("priority: send 1 (first) to 10 (last), or 0 for the normal one")
    return max(0, HIGHEST_PRIORITY + 1 - level) if level else None


def _wants_binary(fields: JsonFields, parameters: JsonFields) -> bool:
    default = parameters.value("binary_data_output", bool, False)
    outputs = fields.objects("outputs")
    if not outputs:
        return default
    if len(outputs) > 1 or outputs[0].value("name", str, "") != OUTPUT:
        raise InvalidRequest(f"the only output is {OUTPUT!r}")
    wishes = outputs[0].nested("parameters")
    if "shared_memory_region" in wishes or wishes.value("classification", int, 0):
        raise InvalidRequest("outputs are neither classified nor written to shared memory")
    return wishes.value("binary_data", bool, default)
