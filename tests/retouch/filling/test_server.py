from __future__ import annotations

import socket

import pytest

from retouch.filling.filler import FillFailed, FillResult
from retouch.filling.server import open_server_filler

PARTS = {"image": b"image", "mask": b"mask"}


async def test_files_and_options_reach_the_server_and_the_picture_comes_back(contract) -> None:
    async with open_server_filler(contract.url, timeout_s=20, retries=3) as filler:
        result = await filler.fill("inpaint", PARTS, {"seed": "7", "format": "png"})
    assert result == FillResult((b"filled image",), "photos/1", "fake")
    assert contract.asked == [{"task": "inpaint", "image": b"image", "mask": b"mask", "seed": "7", "format": "png"}]


async def test_a_busy_server_is_asked_as_often_as_wanted(contract) -> None:
    contract.busy = 100
    async with open_server_filler(contract.url, timeout_s=20, retries=4) as filler:
        with pytest.raises(FillFailed, match=r"503 overloaded: the server is full \(5 tries\)"):
            await filler.fill("inpaint", PARTS, {})
    assert len(contract.asked) == 5


async def test_a_server_that_does_not_answer_in_time_names_the_flag(contract) -> None:
    contract.answers = 0
    async with open_server_filler(contract.url, timeout_s=0.5, retries=3) as filler:
        with pytest.raises(FillFailed, match="--timeout"):
            await filler.fill("inpaint", PARTS, {})
    assert len(contract.asked) <= 1  # 0 where the server's thread was so late that the client had gone


async def test_an_absent_server_is_not_waited_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with open_server_filler(url, timeout_s=20, retries=3) as filler:
            with pytest.raises(FillFailed, match="retouch serve"):
                await filler.fill("inpaint", PARTS, {})


async def test_an_address_that_is_none_is_an_error_of_the_command() -> None:
    with pytest.raises(FillFailed, match="http://HOST:PORT"):
        async with open_server_filler("localhost:8000", timeout_s=20, retries=3):
            pass
