"""Conversion of an inference request to an order, and of its reply to the output tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from engines.repository.versions import ModelStatus
from service.core.errors import NotReady
from service.core.order import Order
from service.core.reply import Reply
from service.intake.intake import Intake
from service.intake.large_bodies import off_loop
from service.open_inference import models
from service.open_inference.requests import InferRequest, check_inputs, options_for
from service.open_inference.tensors import Datatype, as_elements, as_file, as_pixels
from service.telemetry.redaction import without_folders

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InferOrder:
    """A parsed request, its order, and the names of its parameters that have no effect."""

    request: InferRequest
    order: Order
    ignored: frozenset[str]

    def varies_with(self, transport: str) -> tuple[str, ...]:
        """Return the values, besides the order, on which the response depends."""
        return (transport, str(self.request.binary_output), str(self.request.as_pixels), self.request.id)


@dataclass(frozen=True, slots=True)
class Output:
    """The output tensor of a request, in binary form."""

    datatype: Datatype
    shape: tuple[int, ...]
    data: bytes


async def order_of(intake: Intake, request: InferRequest, name: str, version: str = "") -> InferOrder:
    """Return the order of a request for a model; inputs of pixels are encoded as PNG on a codec thread.

    Raises:
        NotFound: there is no such model.
        NotReady: code `model_refused`: the model has no manifest.
        InvalidRequest, InvalidOption: the inputs or parameters do not suit the model.
        Overloaded: as raised by `Intake.count_bytes`.
    """
    status = models.find_status(intake.service.models.statuses(), name, version)
    intake.arrival.on_model(f"{status.name}/{status.version}")
    if status.manifest is None:
        raise refused_error(status)
    check_inputs(request.tensors, models.inputs_of(status.manifest), status.name)
    options, ignored = options_for(status.manifest, "/".join(filter(None, (name, version))), request)
    files = {}
    for tensor in request.tensors:
        intake.count_bytes(2 * len(tensor.data) if tensor.pixels else 0)
        files[tensor.name] = await intake.on_codec_thread(partial(as_file, tensor), tensor.pixels)
    return InferOrder(request, Order(status.manifest.task, files, options), ignored)


async def compute_reply(intake: Intake, asked: InferOrder) -> tuple[Reply, int]:
    """Compute an order; return its reply, and the number of pixels to decode for each picture of the output.

    The number is 0 if the output consists of files. The memory for the decoded pixels is counted.

    Raises:
        ServiceError: as raised by `Intake.run` and `Intake.count_bytes`.
    """
    reply = await intake.run(asked.order)
    pixels = reply.size.height * reply.size.width if asked.request.as_pixels else 0
    if pixels:
        intake.count_bytes(4 * pixels * len(reply.pictures))
    return reply, pixels


async def write_reply(intake: Intake, reply: Reply, pixels: int, write: Callable[[], T]) -> T:
    """Write a response from a reply; `pixels` is the number that `compute_reply` returned."""
    if pixels:
        return await intake.on_codec_thread(write, pixels)
    return await off_loop(reply.nbytes, write)


def output_of(reply: Reply, request: InferRequest, max_pixels: int) -> Output:
    """Return the output: a file for each picture, or the pictures' pixels if the input came as pixels."""
    files = [picture.body for picture in reply.pictures]
    if request.as_pixels:
        data, shape = as_pixels(files, max_pixels)
        return Output("UINT8", shape, data)
    return Output("BYTES", (len(files),), as_elements(files))


def refused_error(status: ModelStatus) -> NotReady:
    """Return the error for a model that cannot be used."""
    return NotReady(f"{status.name}/{status.version}: {without_folders(status.reason)}", code="model_refused")
