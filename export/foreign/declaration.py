"""A user's declaration of a foreign inpainting graph; properties left out are guessed, measured or asked for."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

ImageRange = Literal["0..1", "-1..1", "0..255"]
MaskRange = Literal["0..1", "-0.5..0.5", "-1..1", "0..255"]
MaskMeans = Literal["hole", "known"]
Layout = Literal["nchw", "nhwc"]
Composite = Literal["inside", "outside"]
_INPUT_SLICE = re.compile(r"(?P<name>.+?)(?:\[(?P<first>\d{1,3})(?::(?P<last>\d{1,3}))?\])?")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputSlice(_Frozen):
    """An input of the graph, or some of its channels: `mask`, `input[0:3]` (the first three), `input[3]`."""

    name: str = Field(min_length=1, max_length=300)
    channels: tuple[int, int] | None = None
    """First channel and the one after the last; None for all."""

    @field_validator("channels")
    @classmethod
    def _is_a_range(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and value[0] >= value[1]:
            raise ValueError(
                f"[{value[0]}:{value[1]}] selects no channel: the first must be below the last, as in [0:3]"
            )
        return value

    def __str__(self) -> str:
        return self.name if self.channels is None else f"{self.name}[{self.channels[0]}:{self.channels[1]}]"


def parse_input_slice(text: str) -> InputSlice:
    """Parse `NAME`, `NAME[CHANNEL]` or `NAME[FIRST:AFTER_LAST]`.

    Raises:
        ValueError: the channels are not a range.
    """
    found = _INPUT_SLICE.fullmatch(text)
    if found is None or found["first"] is None:
        return InputSlice(name=text)
    first = int(found["first"])
    return InputSlice(name=found["name"], channels=(first, int(found["last"]) if found["last"] else first + 1))


class Declaration(_Frozen):
    """The flags of `retouch import` that describe the graph; None where the user gave none."""

    image: InputSlice | None = None
    mask: InputSlice | None = None
    output: str | None = Field(default=None, max_length=300)
    layout: Layout | None = None
    image_range: ImageRange | None = None
    mask_range: MaskRange | None = None
    mask_means: MaskMeans | None = None
    """Meaning of the larger of the mask's two values."""
    hole_value: float | None = None
    """Value that masked pixels of the picture are set to, in the net's range. None leaves them unchanged or, if no
    wiring passes so, sets them to 0."""
    output_range: ImageRange | None = None
    composite: Composite | None = None
    channels: Literal["rgb", "bgr"] = "rgb"
    sides: tuple[int, ...] = ()
    """Side lengths of the tiles to serve, ascending, where the graph's sizes are free."""
    multiple_of: int | None = Field(default=None, ge=1, le=512)
    """Number that must divide these sides; None for the usual 8."""
