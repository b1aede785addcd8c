"""An inference request and its options, independent of the transport. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engines.manifest import Manifest
from service.core.errors import InvalidOption, InvalidRequest
from service.core.flow import MAX_PRIORITY
from service.core.schemas import OPTIONS, Options
from service.intake.options import options_of
from service.intake.request_metadata import MAX_TIMEOUT_MS
from service.open_inference.tensors import Tensor

OUTPUT = "output"
"""The name of the only output."""
_NOT_PARAMETERS = frozenset({"model", "webhook", "webhook_events"})
_OWN_PARAMETERS = frozenset({"timeout", "priority", "binary_data_output"})


class Parameters(Protocol):
    """The parameters of a request, by name."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""

    def scalar(self, name: str) -> str:
        """Return a string, number or boolean as the text of a form field; empty if the parameter is absent.

        Raises:
            InvalidOption: the value is of another type.
        """


@dataclass(frozen=True, slots=True)
class InferRequest:
    """An inference request.

    timeout_s: seconds from arrival; None: not set by the client.
    priority: 0 (last) to 9 (first); None: not set by the client.
    """

    id: str
    tensors: tuple[Tensor, ...]
    parameters: Parameters
    binary_output: bool
    timeout_s: float | None
    priority: int | None

    def __post_init__(self) -> None:
        """Check that no input is sent twice.

        Raises:
            InvalidRequest: code `repeated_part`: an input is sent twice.
        """
        if len({tensor.name for tensor in self.tensors}) < len(self.tensors):
            raise InvalidRequest("an input is sent twice; send it once", code="repeated_part")

    @property
    def as_pixels(self) -> bool:
        """Whether the output consists of pixels (UINT8), because the input image does."""
        return any(tensor.name == "image" and tensor.datatype == "UINT8" for tensor in self.tensors)


def options_for(manifest: Manifest, model: str, request: InferRequest) -> tuple[Options, frozenset[str]]:
    """Return the options of a request for a model, and the names of parameters that have no effect.

    Raises:
        InvalidOption: a parameter is out of range.
    """
    kind = OPTIONS[manifest.task]
    sent = set(request.parameters)
    known = set(kind.model_fields) - _NOT_PARAMETERS
    values: dict[str, Any] = {name: request.parameters.scalar(name) for name in known & sent}
    ignored = frozenset(sent - known - _OWN_PARAMETERS)
    if request.as_pixels:
        values["format"] = "png"  # lossless, as the output's pixels are decoded from the file
    return options_of(kind, {"format": "png", **values, "model": model}), ignored


def check_inputs(tensors: tuple[Tensor, ...], known: Mapping[str, bool], model: str) -> None:
    """Check that a model takes these inputs and that none is missing.

    Args:
        tensors: the inputs of the request.
        known: the names of the model's inputs, and whether each is required.
        model: the model's name, for messages.

    Raises:
        InvalidRequest: an input is unknown, or a required one is missing.
    """
    names = {tensor.name for tensor in tensors}
    if unknown := sorted(names - set(known)):
        raise InvalidRequest(f"{model} takes no input {unknown[0][:80]!r}; it takes {', '.join(known) or 'none'}")
    if missing := [name for name, required in known.items() if required and name not in names]:
        raise InvalidRequest(f"the input {missing[0]!r} is missing", code="missing_part")


def timeout_of(microseconds: int) -> float | None:
    """Return the client's timeout in seconds; None for 0, which means no timeout.

    Raises:
        InvalidOption: the timeout is negative or over a day.
    """
    if not 0 <= microseconds <= MAX_TIMEOUT_MS * 1e3:
        raise InvalidOption(f"timeout: send microseconds, 0 to {MAX_TIMEOUT_MS * 1e3:.0f}")
    return microseconds / 1e6 or None


def priority_of(level: int) -> int | None:
    """Return the priority, 9 (first) to 0 (last), of a level: 1 is the highest, and 10 and above share the lowest.

    Returns None for level 0, which means the default priority.

    Raises:
        InvalidOption: the level is negative.
    """
    if level < 0:
        raise InvalidOption("priority: send 1 (first) to 10 (last), or 0 for the normal one")
    return max(0, MAX_PRIORITY + 1 - level) if level else None


def check_requested_outputs(names: list[str], parameters: Mapping[str, Any], *, classes: int) -> None:
    """Check the outputs that a request names, if it names any.

    Args:
        names: names of the requested outputs.
        parameters: parameters of the first requested output.
        classes: number of classes that it requests (Triton's classification extension).

    Raises:
        InvalidRequest: an output is not `output`, or classification or shared memory is requested.
    """
    if names and names != [OUTPUT]:
        raise InvalidRequest(f"request the output {OUTPUT!r}; it is the only one")
    if "shared_memory_region" in parameters or classes:
        raise InvalidRequest("outputs: classification and shared memory are not supported; leave them out")
