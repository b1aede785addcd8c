"""Waiting requests for texture: they delay no plain ones, and texture for a client that has left is not computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from service.imaging.texture.patch_match import Kernel, installed_kernel
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]
Files = dict[str, tuple[str, bytes, str]]
COPIED = {"texture": "copied"}
SEARCHES = 12
"""Sweeps of a picture with one window that is too small for parts: eight at half the size, four at full size."""
pytestmark = pytest.mark.skipif(installed_kernel() is None, reason="Retouch was installed without a C++ compiler")


class Held:
    """A kernel whose sweeps wait until `go_on` is set."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.searches = 0
        self.go_on = threading.Event()

    def sweep(self, *args: Any) -> None:
        self.searches += 1
        assert self.go_on.wait(30)
        self._kernel.sweep(*args)

    def vote(self, *args: Any) -> None:
        self._kernel.vote(*args)

    def blend(self, *args: Any) -> None:
        self._kernel.blend(*args)


def ask(running: Any, files: Files, data: dict[str, str], allowed_ms: int = 30_000) -> httpx.Response:
    with running.client() as client:
        return client.post("/v1/inpaint", files=files, data=data, headers={"X-Request-Timeout-Ms": str(allowed_ms)})


def hold(running: Any) -> Held:
    held = running.service.pipeline.texture = Held(running.service.pipeline.texture)
    return held


@contextmanager
def asking(count: int, *request: Any) -> Iterator[list[httpx.Response]]:
    """Send `count` requests at once; the list that this yields has all answers after the block."""
    answers: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(*request))) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield answers
    for thread in threads:
        thread.join()


def test_what_is_late_ends_before_its_next_search_and_what_waits_is_not_begun(serve: Serve, files: Files) -> None:
    running = serve(codec_threads=1)
    held = hold(running)
    with asking(3, running, files, COPIED, 5000) as answers:
        wait_until(lambda: held.searches == 1)
    assert [answer.status_code for answer in answers] == [504] * 3
    held.go_on.set()
    assert ask(running, files, COPIED).status_code == 200
    assert held.searches == 1 + SEARCHES
    assert running.service.pipeline.long_work.pending == 0


def test_plain_requests_are_answered_beside_a_queue_for_texture(serve: Serve, files: Files) -> None:
    """Requests for texture count neither towards their queue's limit nor towards their predicted wait."""
    running = serve(codec_threads=1, max_queue_size=4)
    held = hold(running)
    with asking(4, running, files, COPIED) as answers:
        wait_until(lambda: running.service.pipeline.long_work.pending > 0 and held.searches == 1)
        wait_until(lambda: running.service.admission.large_in_flight == 4)
        assert running.service.admission.ordinary_in_flight == 0
        assert ask(running, files, {}, 5000).status_code == 200
        held.go_on.set()
    assert [answer.status_code for answer in answers] == [200] * 4


def test_a_request_whose_texture_would_be_late_is_told_at_once(serve: Serve, files: Files) -> None:
    running = serve(codec_threads=1)
    work = running.service.pipeline.long_work
    assert ask(running, files, COPIED).status_code == 200
    work.learn(1.0, 1000.0)
    held = hold(running)
    with asking(1, running, files, COPIED):
        wait_until(lambda: held.searches == 1)
        late = ask(running, files, COPIED, 9000)
        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        assert "the queue for texture is long" in late.json()["detail"]
        assert int(late.headers["retry-after"]) > 0
        assert ask(running, files, {}, 9000).status_code == 200
        held.go_on.set()
    assert work.pending == 0
