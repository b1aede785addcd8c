"""From a message to an inference request, and from an output to a response. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from service.core.errors import InvalidOption, InvalidRequest
from service.core.reply import Reply
from service.grpc.protocol.open_inference_pb2 import InferParameter, ModelInferRequest, ModelInferResponse
from service.grpc.wire import InferParts, length_delimited, split_request
from service.open_inference.orders import Output
from service.open_inference.requests import OUTPUT, InferRequest, check_requested_outputs, priority_of, timeout_of
from service.open_inference.tensors import Tensor, element_of, file_tensor, pixel_tensor, refuse_shared_memory

_RAW_OUTPUT_CONTENTS = 6
_Inputs = ModelInferRequest.InferInputTensor


class NamedRequest(NamedTuple):
    """An inference request, and the model that it names; an empty version means the newest."""

    model: str
    version: str
    request: InferRequest


class MessageParameters:
    """The parameters of a request; a value is a boolean, a number or a string."""

    def __init__(self, values: Mapping[str, InferParameter]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def scalar(self, name: str) -> str:
        """Return a value as the text of a form field; empty if it is absent or not set."""
        found = self._values[name] if name in self._values else None  # noqa: SIM401 -- `get` of protobuf's maps is slow
        kind = found.WhichOneof("parameter_choice") if found is not None else None
        if found is None or kind is None:
            return ""
        value: bool | int | float | str = getattr(found, kind)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def integer(self, name: str) -> int:
        """Return a whole number; 0 if it is absent.

        Raises:
            InvalidOption: the value is not a whole number.
        """
        text = self.scalar(name)
        digits = text.removeprefix("-")
        if text and not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise InvalidOption(f"{name}: send a whole number, not {text[:40]!r}")
        return int(text or 0)


def parse_named_request(message: bytes, max_pixels: int) -> NamedRequest:
    """Read a message as an inference request.

    Raises:
        InvalidRequest, TooLarge: the message is malformed, or its tensors are wrong.
        InvalidOption: a parameter is out of range.
    """
    parts = split_request(message)
    try:
        head = ModelInferRequest.FromString(bytes(parts.head))
    except DecodeError as error:
        raise InvalidRequest("the message is not a ModelInferRequest") from error
    parameters = MessageParameters(head.parameters)
    outputs = [output.name for output in head.outputs]
    requested = head.outputs[0].parameters if outputs else {}
    check_requested_outputs(outputs, requested, classes=MessageParameters(requested).integer("classification"))
    request = InferRequest(
        id=head.id,
        tensors=tuple(_tensors_of(head, parts, max_pixels)),
        parameters=parameters,
        binary_output=True,
        timeout_s=timeout_of(parameters.integer("timeout")),
        priority=priority_of(parameters.integer("priority")),
    )
    return NamedRequest(head.model_name, head.model_version, request)


def response_of(reply: Reply, request: InferRequest, output: Output) -> bytes:
    """Return the message of a response; its data is copied once."""
    name, _, version = reply.model.partition("/")
    described = ModelInferResponse.InferOutputTensor(name=OUTPUT, datatype=output.datatype, shape=output.shape)
    head = ModelInferResponse(model_name=name, model_version=version, id=request.id, outputs=[described])
    if reply.seed is not None:
        head.parameters["seed"].int64_param = reply.seed
    data = length_delimited(_RAW_OUTPUT_CONTENTS, len(output.data))
    return b"".join((head.SerializeToString(), data, output.data))


def _tensors_of(head: ModelInferRequest, parts: InferParts, max_pixels: int) -> Iterator[Tensor]:
    """Yield the inputs: from `raw_input_contents` if there are any, otherwise each from its `contents`."""
    typed = bool(parts.numbers) or any(parts.files)
    if parts.raw and typed:
        raise InvalidRequest("the data was sent twice: send either raw_input_contents or contents of the inputs")
    if parts.raw and len(parts.raw) != len(head.inputs):
        raise InvalidRequest(f"{len(head.inputs)} inputs and {len(parts.raw)} raw_input_contents; send one for each")
    for index, described in enumerate(head.inputs):
        refuse_shared_memory(described.name, described.parameters)
        if parts.raw:
            yield _raw_tensor(described, parts.raw[index], max_pixels)
        else:
            yield _typed_tensor(described, parts.files[index], numbers=index in parts.numbers)


def _raw_tensor(described: _Inputs, data: memoryview, max_pixels: int) -> Tensor:
    name, shape = described.name, list(described.shape)
    if described.datatype == "BYTES":
        return file_tensor(name, shape, lambda: element_of(data, name))
    return pixel_tensor(name, described.datatype, shape, data, max_pixels)


def _typed_tensor(described: _Inputs, files: list[memoryview], *, numbers: bool) -> Tensor:
    name = described.name
    if described.datatype != "BYTES" or numbers:
        raise InvalidRequest(
            f"input {name[:80]!r}: contents are taken as bytes_contents of BYTES; send UINT8 as raw_input_contents"
        )
    if len(files) != 1:
        raise InvalidRequest(f"input {name[:80]!r}: contents have {len(files)} elements; send one file")
    if not files[0]:
        raise InvalidRequest(f"input {name[:80]!r} is empty", code="empty_part")
    return file_tensor(name, list(described.shape), lambda: bytes(files[0]))
