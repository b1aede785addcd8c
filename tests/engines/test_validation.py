"""Invalid values are reported in plain words, with the name that was probably meant."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engines.validation import bounds_of, fault_message, unknown_name, validation_message


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    depth: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    quality: int = 1
    inner: Inner = Inner()
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    share: float | None = Field(None, gt=0, le=2.5)
    kept: bool = True
    kind: Literal["a", "b"] = "a"
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


def test_every_fault_is_named_with_its_place_and_without_text_that_may_be_secret() -> None:
    said = told(quality="secret", inner={"dept": 1})
    assert said == ("quality: it must be a whole number; unknown field inner.dept")


def test_a_field_of_two_kinds_is_named_once_with_what_either_kind_takes() -> None:
    assert told(workers=-1) == "workers: it must be at least 0, or 'auto', not -1"
    assert told(workers="x", name="x") == (
        "workers: it must be a whole number, at least 0, or 'auto'; name: it is no name"
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"share": "3"}, "share: it must be more than 0 and at most 2.5, not 3"),
        ({"share": -1}, "share: it must be more than 0 and at most 2.5, not -1"),
        ({"share": "nan"}, "share: it must be more than 0 and at most 2.5, not nan"),
        ({"quality": 1.5}, "quality: it must be a whole number, not 1.5"),
        ({"quality": "9" * 6000}, f"quality: it must be a whole number, not {'9' * 40}…"),
        ({"inner": {"depth": "7.5"}}, "inner.depth: it must be a whole number, not 7.5"),
        ({"kept": 7, "kind": "c"}, "kept: it must be true or false; kind: it must be 'a' or 'b'"),
    ],
)
def test_a_wrong_number_is_repeated_beside_all_its_bounds(values: dict[str, object], said: str) -> None:
    assert told(**values) == said


def test_a_fault_alone_says_its_own_bound() -> None:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate({"share": 3})
    (fault,) = error.value.errors()
    assert fault_message(fault) == "it must be at most 2.5, not 3"
    assert fault_message(fault, bounds_of(Outer.model_fields["share"]), quoted=False) == (
        "it must be more than 0 and at most 2.5"
    )
