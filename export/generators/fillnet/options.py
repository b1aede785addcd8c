"""The options that distinguish nets of the family, and what they mean for sizes."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field, field_validator, model_validator

from export.generators.family import GeneratorOptions

PATCH = 4
"""Side of the square of pixels that is one position of the finest level."""
HEADS = 4
"""Attention heads."""
NUMBERS = r"^\d{1,4}(,\d{1,4})*$"
DIGITS_OR_NONE = r"^(\d(,\d)*)?$"


def parse_numbers(text: str) -> list[int]:
    """Parse the numbers of an option such as "96,192"; an empty text has none."""
    return [int(number) for number in text.split(",") if number]


def empty_without_attention(context: str) -> str:
    """Return the option `context`, or its only form without attention: an empty text."""
    return context if any(parse_numbers(context)) else ""


def join_numbers(values: Iterable[int]) -> str:
    """Format numbers as an option such as "96,192"."""
    return ",".join(map(str, values))


class FillNetOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    widths: str = Field(
        "96,192,256,256,256", pattern=NUMBERS, description="channels at 1/4 of the size, at 1/8 and so on"
    )
    encoder: str = Field("0,0,3,2,0", pattern=NUMBERS, description="residual blocks of each level of the encoder")
    decoder: str = Field(
        "1,2,2,1,1",
        pattern=NUMBERS,
        description="residual blocks of each level of the decoder; the last is the bottom",
    )
    context: str = Field(
        "",
        pattern=DIGITS_OR_NONE,
        description="layers of attention of each level, alternately in decoder and encoder; empty: none",
    )

    _one_form_without_attention = field_validator("context")(empty_without_attention)

    @model_validator(mode="after")
    def _check_consistency(self) -> FillNetOptions:
        levels = len(self.channels)
        if not 2 <= levels == len(parse_numbers(self.encoder)) == len(parse_numbers(self.decoder)) <= 7:
            raise ValueError("widths, encoder and decoder have one number a level each, for 2 to 7 levels")
        if min(self.channels) < 1:
            raise ValueError("widths are positive")
        if self.context and len(self.attention) != levels:
            raise ValueError("context has one number a level, as widths have, or is empty")
        for width, layers in zip(self.channels, self.attention, strict=True):
            if layers and width % HEADS:
                raise ValueError(f"context: a level of {width} channels has no attention, as {HEADS} heads share them")
        return self

    @property
    def channels(self) -> list[int]:
        """The channels of each level, from `widths`."""
        return parse_numbers(self.widths)

    @property
    def attention(self) -> list[int]:
        """The layers of attention of each level, from `context`."""
        return parse_numbers(self.context) or [0] * len(self.channels)

    @property
    def multiple(self) -> int:
        """The number that height and width must be multiples of."""
        return PATCH << (len(self.channels) - 1)
