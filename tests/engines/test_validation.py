"""Invalid values are reported in plain words, with the name that was probably meant."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engines.validation import unknown_name, validation_message


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    depth: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    quality: int = 1
    inner: Inner = Inner()
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    name: str = ""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name:
            raise ValueError("it is no name")
        return name


def told(**values: object) -> str:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate(values)
    return validation_message(error.value, "field", Outer.model_fields)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("qualty", "unknown field qualty; did you mean quality?"),
        ("QUALITY", "unknown field QUALITY; did you mean quality?"),
        ("zzz", "unknown field zzz"),
        ("z" * 500, f"unknown field {'z' * 80}"),
    ],
)
def test_the_nearest_name_is_proposed_if_one_is_near(written: str, said: str) -> None:
    assert unknown_name("field", written, ["quality", "inner"]) == said
    assert told(**{written: 1}) == said


def test_every_fault_is_named_with_its_place_and_without_the_value() -> None:
    said = told(quality="secret", inner={"dept": 1})
    assert said == (
        "quality: Input should be a valid integer, unable to parse string as an integer; unknown field inner.dept"
    )


def test_a_field_of_two_kinds_is_named_once_with_what_either_kind_takes() -> None:
    assert told(workers=-1) == "workers: Input should be greater than or equal to 0, or Input should be 'auto'"
    assert told(workers="x", name="x") == (
        "workers: Input should be a valid integer, unable to parse string as an integer, or Input should be 'auto'; "
        "name: it is no name"
    )
