"""An inference request and what it asks for, whatever transport it came by. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engines.manifest import Manifest
from service.core.errors import InvalidOption, InvalidRequest
from service.core.flow import HIGHEST_PRIORITY
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
        """Return a string, number or boolean as a form field has it; empty if it is absent.

        Raises:
            InvalidOption: the value is none of these.
        """


@dataclass(frozen=True, slots=True)
class InferRequest:
    """An inference request.

    timeout_s: seconds from arrival; None if the client named none. priority: 0 (last) to 9 (first), or None.
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
            InvalidRequest: one is.
        """
        if len({tensor.name for tensor in self.tensors}) < len(self.tensors):
            raise InvalidRequest("an input is sent twice; send it once", code="repeated_part")

    @property
    def as_pixels(self) -> bool:
        """Whether the output is UINT8, as the input is."""
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


def check_requested_outputs(names: list[str], parameters: Mapping[str, Any], *, classes: int) -> None:
    """Check the outputs that a request names, if it names any.

    Args:
        names: of the outputs.
        parameters: those of the first one.
        classes: the number of classes that it asks for.

    Raises:
        InvalidRequest: there is another output than ours, or it is to be classified or put into shared memory.
    """
    if names and names != [OUTPUT]:
        raise InvalidRequest(f"the only output is {OUTPUT!r}")
    if "shared_memory_region" in parameters or classes:
        raise InvalidRequest("outputs are neither classified nor written to shared memory")
