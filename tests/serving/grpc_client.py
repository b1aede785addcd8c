"""A gRPC client for tests: calls methods by name, and returns a status where grpc raises an error."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.message import Message

from service.grpc.methods import SERVICE
from service.grpc.protocol import open_inference_pb2 as messages

Input = messages.ModelInferRequest.InferInputTensor
Output = messages.ModelInferRequest.InferRequestedOutputTensor
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@dataclass(frozen=True)
class Answered:
    """The answer to a call: status code, its text, trailing metadata and, if OK, the serialised message."""

    code: grpc.StatusCode
    details: str
    trailing: Mapping[str, str]
    message: bytes = b""


class GrpcClient:
    """A gRPC channel to a server, with a connection of its own; gRPC would share one among equal channels.

    Args:
        address: host and port.
        key: an API key, sent with each call; empty for none.
    """

    def __init__(self, address: str, key: str = "") -> None:
        self.channel = grpc.insecure_channel(address, options=(*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)))
        self._key = key

    def __enter__(self) -> GrpcClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def start(self, method: str, request: Message | bytes, timeout: float | None = 60.0, **further: Any) -> Any:
        """Begin a call and return its future; keyword arguments except `compression` are metadata, with `_` for `-`."""
        compression = further.pop("compression", None)
        named = {name.replace("_", "-"): str(value) for name, value in further.items()}
        if self._key:
            named = {"authorization": f"Bearer {self._key}", **named}
        path = method if method.startswith("/") else f"{SERVICE}{method}"
        data = request if isinstance(request, bytes) else request.SerializeToString()
        called = self.channel.unary_unary(path, request_serializer=None, response_deserializer=None)
        return called.future(data, metadata=tuple(named.items()), timeout=timeout, compression=compression)

    def call(
        self, method: str, request: Message | bytes = b"", timeout: float | None = 60.0, **further: Any
    ) -> Answered:
        """Call a method and wait for its answer."""
        return answer_of(self.start(method, request, timeout, **further))

    def infer(self, request: messages.ModelInferRequest, **further: Any) -> bytes:
        """Call ModelInfer, whose answer must have one picture, and return the picture's file."""
        answered = self.call("ModelInfer", request, **further)
        assert answered.code is grpc.StatusCode.OK, answered
        return file_of(answered)


def answer_of(future: Any) -> Answered:
    """Wait for the answer to a call."""
    code, trailing = future.code(), dict(future.trailing_metadata() or ())
    return Answered(code, future.details() or "", trailing, future.result() if code is grpc.StatusCode.OK else b"")


def response_in(answered: Answered) -> messages.ModelInferResponse:
    return messages.ModelInferResponse.FromString(answered.message)


def file_of(answered: Answered) -> bytes:
    """Return the only file of a response whose output is a BYTES tensor with one element."""
    (data,) = response_in(answered).raw_output_contents
    assert struct.unpack_from("<I", data)[0] == len(data) - 4
    return data[4:]


def element(data: bytes) -> bytes:
    """Return the binary data of a BYTES tensor with one element."""
    return struct.pack("<I", len(data)) + data


def raw_request(
    inputs: Mapping[str, tuple[str, Sequence[int], bytes]], model: str = "photos", **fields: Any
) -> messages.ModelInferRequest:
    """Return a request with raw contents: name → datatype, shape, data."""
    described = [Input(name=name, datatype=kind, shape=shape) for name, (kind, shape, _) in inputs.items()]
    raw = [data for _, _, data in inputs.values()]
    return messages.ModelInferRequest(model_name=model, inputs=described, raw_input_contents=raw, **fields)


def files_request(image: bytes, mask: bytes, **fields: Any) -> messages.ModelInferRequest:
    """Return a request for a fill, with encoded files as raw contents."""
    return raw_request({"image": ("BYTES", [1], element(image)), "mask": ("BYTES", [1], element(mask))}, **fields)


def with_parameters(request: messages.ModelInferRequest, **values: bool | int | float | str) -> Any:
    """Set parameters of the request, in the fields of the values' types, and return the request."""
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in values.items():
        kind = "uint64_param" if isinstance(value, int) and value >= 2**63 else kinds[type(value)]
        setattr(request.parameters[name], kind, value)
    return request
