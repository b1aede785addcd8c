from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from retouch.client.calls import Call, picture_call, read_call
from retouch.client.errors import KeyUnusable, OptionUnusable
from retouch.client.options import GenerateOptions, InpaintOptions, PictureOptions, ResultFilter, TranslateOptions


def made(options: dict[str, Any], *, job: bool = False) -> Call:
    return picture_call("inpaint", {"image": b"i"}, options, lambda: "new", job=job)


def test_options_are_fields_or_headers_and_those_left_out_are_not_sent() -> None:
    options = {"seed": 7, "save": True, "model": None, "priority": "high", "deadline_s": 2.5, "request_id": "r1"}
    call = made(options)
    assert (call.method, call.path, call.fields) == ("POST", "/v1/inpaint", {"seed": "7", "save": "true"})
    assert call.headers == {
        "Accept": "multipart/mixed, */*",
        "X-Request-Timeout-Ms": "2500.000",
        "X-Priority": "high",
        "X-Request-ID": "r1",
        "Idempotency-Key": "new",
    }


def test_a_key_is_made_unless_nothing_shall_be_stored_or_the_caller_chose() -> None:
    keys = [
        made(options).headers.get("Idempotency-Key")
        for options in ({}, {"save": False}, {"save": False, "idempotency_key": "k"}, {"idempotency_key": None})
    ]
    assert keys == ["new", None, "k", None]


@pytest.mark.parametrize("option", ["idempotency_key", "request_id"])
@pytest.mark.parametrize("value", ["schlüssel", "a\nb", "ключ"])
def test_what_a_header_cannot_carry_is_named_before_anything_is_sent(option: str, value: str) -> None:
    with pytest.raises(KeyUnusable, match="holds characters that a header cannot carry"):
        made({option: value})


@pytest.mark.parametrize(
    ("key", "sent"), [(" two words\t", "two words"), ("line\n", "line"), (UUID(int=5), str(UUID(int=5))), (7, "7")]
)
def test_a_key_is_sent_as_text_without_spaces_at_its_ends(key: object, sent: str) -> None:
    headers = made({"idempotency_key": key, "request_id": key}).headers
    assert (headers["Idempotency-Key"], headers["X-Request-ID"]) == (sent, sent)


@pytest.mark.parametrize("priority", ["low", "High", " normal ", "0", 9])
def test_a_priority_is_sent_as_it_is(priority: object) -> None:
    assert made({"priority": priority}).headers["X-Priority"] == str(priority).strip()


@pytest.mark.parametrize("priority", ["urgent", "höchste", "", 10, -1, True, 1.5])
def test_a_priority_that_is_none_is_refused_with_those_there_are(priority: object) -> None:
    with pytest.raises(OptionUnusable, match=r"priority is .*; pass low, normal, high, or 0 \(last\) to 9 \(first\)"):
        made({"priority": priority})


def test_only_a_job_without_a_key_must_not_be_repeated() -> None:
    assert made({}, job=True).headers["Prefer"] == "respond-async"
    assert made({}, job=True).repeatable
    assert made({"idempotency_key": None}).repeatable
    assert not made({"idempotency_key": None}, job=True).repeatable


def test_a_returning_call_has_the_id_of_its_refusal_and_all_else_as_before() -> None:
    call = made({"seed": 1})
    again = call.returning("r7")
    assert again.headers == {**call.headers, "X-Request-ID": "r7"}
    assert (again.fields, again.files) == (call.fields, call.files)
    assert call.returning("") == call


def test_options_that_are_pictures_are_parts_and_no_name_of_the_callers_files_is_sent() -> None:
    call = read_call("translate", {"image": b"a"}, {"instance": b"b", "reference": None}, lambda: "k", job=False)
    assert call.files == {"image": b"a", "instance": b"b"}
    assert call.multipart() == {"image": ("image", b"a"), "instance": ("instance", b"b")}
    assert Call("GET", "/v1/models").multipart() is None


@pytest.mark.parametrize(
    ("task", "pictures", "missing"),
    [
        ("inpaint", {}, "submit('inpaint', …) takes image and mask; got no picture"),
        ("inpaint", {"image": b"1"}, "submit('inpaint', …) takes image and mask; got image"),
        ("translate", {"image": b"1", "mask": b"1"}, "submit('translate', …) takes image; got image and mask"),
        ("generate", {"image": b"1"}, "submit('generate', …) takes no picture; got image"),
        ("paint", {"image": b"1"}, "'paint' is not a task; pass inpaint, translate or generate"),
    ],
)
def test_a_job_with_other_pictures_than_its_task_takes_is_refused_before_it_is_sent(
    task: Any, pictures: dict[str, bytes], missing: str
) -> None:
    with pytest.raises(OptionUnusable, match=re.escape(missing)):
        read_call(task, pictures, {}, lambda: "key", job=True)


@pytest.mark.parametrize(
    "options",
    [PictureOptions, InpaintOptions, TranslateOptions, GenerateOptions, ResultFilter],
    ids=lambda o: o.__name__,
)
def test_the_help_of_options_explains_each_of_them(options: Any) -> None:
    explained = re.findall(r"^ {4}(\w+): ", options.__doc__, re.MULTILINE)
    assert explained == list(options.__annotations__)[-len(explained) :]
    inherited = PictureOptions.__annotations__ if "PictureOptions" in options.__doc__ else {}
    assert {*explained, *inherited} == set(options.__annotations__)
