from __future__ import annotations

import socket

import pytest

from retouch.client.http_client import FillResult, RequestRefused, RetryPolicy, ServerUnreachable, open_http_filler

PARTS = {"image": b"image", "mask": b"mask"}


class Pauses:
    """A sleep that records its durations instead of sleeping."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def opened(url: str, **options: float):  # type: ignore[no-untyped-def] # an async context manager with defaults
    return open_http_filler(url, **{"timeout_s": 20.0, "connections": 2, "retries": 3, "sleep": Pauses(), **options})


async def test_files_and_options_reach_the_server_and_the_picture_comes_back(contract) -> None:
    async with opened(contract.url) as filler:
        result = await filler.fill("inpaint", PARTS, {"seed": "7", "format": "png"})
    assert result == FillResult((b"filled image",), "photos/1", "fake")
    assert contract.asked == [{"task": "inpaint", "image": b"image", "mask": b"mask", "seed": "7", "format": "png"}]


async def test_a_busy_server_is_asked_again_when_it_says(contract) -> None:
    contract.busy, contract.retry_after = 2, "7"
    pauses = Pauses()
    async with opened(contract.url, sleep=pauses) as filler:
        assert (await filler.fill("translate", {"image": b"x"}, {})).bodies == (b"filled x",)
    assert pauses.seconds == [7.0, 7.0]


async def test_a_server_that_stays_busy_is_given_up_on(contract) -> None:
    contract.busy = 100
    async with opened(contract.url, retries=2) as filler:
        with pytest.raises(RequestRefused, match=r"503 overloaded: the house is full \(3 tries\)") as refused:
            await filler.fill("inpaint", PARTS, {})
    assert (refused.value.status, refused.value.code) == (503, "overloaded")
    assert len(contract.asked) == 3


async def test_a_bad_image_is_refused_once_with_the_servers_words(contract) -> None:
    async with opened(contract.url) as filler:
        with pytest.raises(RequestRefused, match=r"^400 invalid_image: these bytes are no image$"):
            await filler.fill("inpaint", {"image": contract.unwelcome}, {})
    assert len(contract.asked) == 1


async def test_a_reply_that_is_no_problem_is_quoted(contract) -> None:
    async with opened(contract.url) as filler:
        with pytest.raises(RequestRefused, match=r"^502 Bad Gateway: out of order$"):
            await filler.fill("inpaint", {"image": b"plain"}, {})


async def test_an_absent_server_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        async with opened(f"http://127.0.0.1:{taken.getsockname()[1]}") as filler:
            with pytest.raises(ServerUnreachable, match="retouch serve"):
                await filler.fill("inpaint", PARTS, {})


async def test_a_server_that_does_not_answer_in_time_is_unreachable(contract) -> None:
    contract.delay_s = 1.0
    async with opened(contract.url, timeout_s=0.05) as filler:
        with pytest.raises(ServerUnreachable, match="--timeout"):
            await filler.fill("inpaint", PARTS, {})


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://host:port", "http://", "http://[broken"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ServerUnreachable, match="http://HOST:PORT"):
        async with opened(url):
            pass


@pytest.mark.parametrize(
    ("attempt", "retry_after", "expected_s"),
    [
        pytest.param(1, "3", 3.0, id="as asked"),
        pytest.param(1, "3600", 60.0, id="never longer than a minute"),
        pytest.param(1, None, 0.5, id="not asked"),
        pytest.param(3, None, 2.0, id="not asked, third time"),
        pytest.param(2, "Fri, 31 Dec 1999 23:59:59 GMT", 1.0, id="a date"),
        pytest.param(8, "0", 0.0, id="last try"),
        pytest.param(9, "0", None, id="no more tries"),
    ],
)
def test_pauses(attempt: int, retry_after: str | None, expected_s: float | None) -> None:
    assert RetryPolicy(retries=8).pause_s(attempt, retry_after) == expected_s


async def test_several_pictures_come_back_in_their_order_and_whatever_bytes_they_hold(contract) -> None:
    image = b"\r\n--edg like \x00\r\n\r\n--"
    async with opened(contract.url) as filler:
        result = await filler.fill("inpaint", {"image": image, "mask": b"m"}, {"samples": "3"})
    assert result.bodies == (b"filled " + image, b"filled " + image + b" 1", b"filled " + image + b" 2")
