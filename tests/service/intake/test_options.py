"""Options of foreign requests: their names in error messages, and models that do not exist."""

from __future__ import annotations

import pytest

from service.core.errors import InvalidOption, NotFound
from service.core.schemas import InpaintOptions
from service.intake.options import ignored_header, options_of


def test_none_and_empty_values_count_as_absent() -> None:
    assert options_of(InpaintOptions, {"seed": None, "model": "", "samples": "2"}) == InpaintOptions(samples=2)


@pytest.mark.parametrize("name", ["DALL·E", "v1-5.safetensors [abc]", "../photos", "photos/0", "a" * 65])
def test_a_name_that_no_model_can_have_is_not_found(name: str) -> None:
    with pytest.raises(NotFound, match="no model"):
        options_of(InpaintOptions, {"model": name})


@pytest.mark.parametrize("events", ["done", "succeeded, failed", "succeeded,"])
def test_an_invalid_list_of_job_events_is_explained_without_a_pattern(events: str) -> None:
    said = "^webhook_events: it is not a list of job events; send some of succeeded,failed,cancelled, without spaces$"
    with pytest.raises(InvalidOption, match=said):
        options_of(InpaintOptions, {"webhook_events": events})


def test_a_message_has_the_foreign_name_of_an_option() -> None:
    with pytest.raises(InvalidOption, match=r"^n: "):
        options_of(InpaintOptions, {"samples": 9}, {"samples": "n"})


def test_foreign_names_may_be_those_of_other_options() -> None:
    with pytest.raises(InvalidOption, match=r"^seed: .*; quality: [^:]*$"):
        options_of(InpaintOptions, {"samples": 9, "seed": -1}, {"samples": "seed", "seed": "quality"})


def test_ignored_fields_are_named_in_order_and_at_most_forty() -> None:
    assert ignored_header(set()) == {}
    assert ignored_header({"b", "a", "x\r\ny", "ü"}) == {"X-Ignored-Fields": "a, b"}
    assert ignored_header({f"f{n}" for n in range(99)})["X-Ignored-Fields"].count(",") == 39
