"""The parser of JSON with pictures in base64."""

from __future__ import annotations

import base64
import json
import tracemalloc

import pytest

from service.compat.json_fields import parse_fields
from service.compat.json_memory import decoded_bytes
from service.compat.json_strings import MAX_VALUES
from service.core.errors import InvalidOption, InvalidRequest

DATA = bytes(range(256))
TEXT = base64.b64encode(DATA).decode()


def test_a_picture_is_decoded_from_base64_from_a_data_url_and_with_line_breaks() -> None:
    lines = "\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76))
    for text in (TEXT, f"data:image/png;base64,{TEXT}", f"DATA:;BASE64,{TEXT}", lines):
        assert parse_fields(json.dumps({"image": text}).encode()).picture("image") == DATA


@pytest.mark.parametrize(
    ("text", "strange"),
    [(base64.urlsafe_b64encode(DATA).decode(), "'-'"), (TEXT.replace("+", "%2B"), "'%'"), ("ü" + TEXT, "'ü'")],
    ids=("of addresses", "percent-encoded", "no ASCII"),
)
def test_a_character_that_is_not_of_base64_is_named_and_never_left_out(text: str, strange: str) -> None:
    for body in (f'{{"image": "{text}"}}', f'{{"image": "{text}", "escaped": "\\n"}}'):
        with pytest.raises(InvalidRequest, match=f"`image` is not base64: it has {strange}"):
            parse_fields(body.encode()).picture("image")


LINES = "\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76))
PIECES = [DATA[start : start + 100] for start in range(0, len(DATA), 100)]
BEGIN = "A" * (1 << 16)


@pytest.mark.parametrize("text", [f" {TEXT}\n", f"  {LINES}", LINES.replace("\n", "\r\n  "), TEXT + "="])
def test_white_space_at_the_ends_and_indented_lines_are_allowed(text: str) -> None:
    assert parse_fields(json.dumps({"image": text}).encode()).picture("image") == DATA


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("+", " "), r"it has ' '; send A-Z"),
        (LINES.replace("+", " "), r"it has ' '; send A-Z"),
        (f"{BEGIN} {BEGIN}\n", r"it has ' '; send A-Z"),
        (f"{BEGIN[:-2]}  {BEGIN}\n", r"it has ' '; send A-Z"),
        ("".join(base64.b64encode(piece).decode() for piece in PIECES), "text follows its padding =; encode the file"),
        (f"{BEGIN}AA== {BEGIN}", "text follows its padding ="),
        (TEXT.rstrip("="), "its length shows that a part is missing; send all of it"),
        (TEXT[:5], "its length shows that a part is missing; send all of it"),
    ],
    ids=[
        "decoded as a form",
        "lines decoded as a form",
        "a space between blocks",
        "spaces at the end of a block",
        "encoded in pieces",
        "continued in another block",
        "without padding",
        "cut off",
    ],
)
def test_text_of_which_a_part_would_be_left_out_is_refused_with_its_cause(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^`image` is not base64: {why}") as refused:
        parse_fields(json.dumps({"image": text}).encode()).picture("image")
    assert refused.value.field == "image"


def test_decoding_makes_no_copy_of_the_text() -> None:
    body = b'{"image": "' + b"A" * 8_000_000 + b'"}'
    tracemalloc.start()
    parse_fields(body).picture("image")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < decoded_bytes(body) + 100_000 < len(body)


def test_only_a_file_with_escapes_is_unescaped_and_its_copy_has_a_byte_a_character() -> None:
    lines = b"\\n".join([b"A" * 76] * 50_000)
    body = b'{"image": "%s", "mask": "%s", "prompt": "\\u20ac"}' % (lines, b"A" * 4_000_000)
    fields = parse_fields(body)
    for name, most in (("mask", len(body)), ("image", 3 * len(body))):
        tracemalloc.start()
        fields.picture(name)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most * 0.45


@pytest.mark.parametrize("widening", ["\\u20ac", "\\ud83d\\ude00", "😀"], ids=["euro", "escaped emoji", "emoji"])
def test_a_file_with_a_wide_character_is_refused_before_all_its_characters_are_widened(widening: str) -> None:
    body = f'{{"image": "{"A" * 4_000_000}{widening}\\n"}}'.encode()
    fields = parse_fields(body)
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match=r"`image` is not base64: it has '[€😀]'"):
        fields.picture("image")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_a_value_too_long_for_a_text_is_refused_before_it_is_decoded() -> None:
    fields = parse_fields(f'{{"model": "{"A" * 4_000_000}😀", "data": ["{"A" * 5000}"]}}'.encode())
    tracemalloc.start()
    for read in (lambda: fields.value("model", str, ""), lambda: fields.scalar("model")):
        with pytest.raises(InvalidOption, match=r"`model` has 4,000,006 bytes; send at most 4,096"):
            read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert len(fields.listed("data")) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it is empty"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"a": ', "Input data was truncated"),
    ],
    ids=["empty", "a list", "cut off"],
)
def test_a_body_that_is_no_object_is_refused_with_the_reason_and_what_to_send(body: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^the body is not a JSON object: {why}; send one, in UTF-8$"):
        parse_fields(body)


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_which_powershell_writes_is_ignored() -> None:
    body = BYTE_ORDER_MARK + json.dumps({"image": TEXT, "prompt": "ü"}).encode()
    for sent in (body, bytearray(body)):
        fields = parse_fields(sent)
        assert (fields.picture("image"), fields.scalar("prompt")) == (DATA, "ü")
    for refused in (BYTE_ORDER_MARK, BYTE_ORDER_MARK * 2 + b"{}"):
        with pytest.raises(InvalidRequest, match="not a JSON object"):
            parse_fields(refused)
    with pytest.raises(InvalidRequest, match=r"^`prompt` has half of a surrogate pair"):
        parse_fields(BYTE_ORDER_MARK + rb'{"prompt": "\ud83d"}')


CUT_EMOJI = r"\ud83d"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (f'{{"mask": "AAAA", "prompt": "a cat {CUT_EMOJI}"}}', "`prompt`"),
        (f'{{"prompt": "{CUT_EMOJI} and {CUT_EMOJI}\\ude00"}}', "`prompt`"),
        (r'{"prompt": "\udfff"}', "`prompt`"),
        (r'{"prompt": "\\\ud800"}', "`prompt`"),
        (f'{{"é": 1{"0" * 5000}, "inputs": [{{}}, {{"name": ["{CUT_EMOJI}"]}}]}}', r"`inputs\[1\].name\[0\]`"),
        (f'{{"{CUT_EMOJI}": 1}}', "the name of a field"),
        (f'{{"parameters": {{"{CUT_EMOJI}": 1}}}}', "the name of a field in `parameters`"),
    ],
)
def test_a_text_that_was_cut_within_a_character_is_named(body: str, place: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{place} has half of a surrogate pair, .*; send whole characters$"):
        parse_fields(body.encode())


def test_long_names_above_a_cut_text_are_not_copied_for_every_value_below_them() -> None:
    depth, name = 100, "A" * 10_000
    body = (f'{{"{name}":' * depth + rf'{{"prompt": "{CUT_EMOJI}"}}' + "}" * depth).encode()
    tracemalloc.start()
    with pytest.raises(InvalidRequest, match=r"^`A+\.prompt` has half of a surrogate pair"):
        parse_fields(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(body)


@pytest.mark.parametrize("end", ["", "[" * 100_000, ' "b": '], ids=["cut off", "deep", "no comma"])
def test_a_body_that_is_malformed_in_another_way_too_is_refused_as_such(end: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^the body is not a JSON object: "):
        parse_fields(f'{{"a": "{CUT_EMOJI}"{end}'.encode())


def test_whole_characters_and_escaped_backslashes_are_read_as_they_are() -> None:
    assert parse_fields(rf'{{"a": "{CUT_EMOJI}\ude00 \\ud800"}}'.encode()).value("a", str, "") == "😀 \\ud800"


def test_null_is_absent_and_numbers_may_be_texts() -> None:
    fields = parse_fields(b'{"none": null, "n": "7", "x": 2.0, "flag": "true", "t": true}')
    assert "none" not in fields
    assert (fields.value("n", int, 0), fields.value("x", int, 0), fields.value("flag", bool, False)) == (7, 2, True)
    assert (fields.scalar("n"), fields.scalar("t"), fields.scalar("none")) == ("7", "true", "")
    with pytest.raises(InvalidOption, match="`n`"):
        fields.value("n", list[int], [])


def test_the_number_of_values_is_limited_before_they_are_read() -> None:
    few, many = (b'{"a": [' + b",".join([b"0"] * number) + b"]}" for number in (MAX_VALUES, MAX_VALUES + 2))
    assert len(parse_fields(few).listed("a")) == MAX_VALUES
    with pytest.raises(InvalidRequest, match="values"):
        parse_fields(many)


@pytest.mark.parametrize("url", ["http://127.0.0.1/a.png", "https://example.org/a.png", "file:///etc/passwd"])
def test_a_url_is_refused_and_never_fetched(url: str) -> None:
    with pytest.raises(InvalidRequest, match="fetches none"):
        parse_fields(json.dumps({"image": url}).encode()).picture("image")
