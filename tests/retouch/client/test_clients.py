"""Both clients against a real server."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engines.fake import FakeEngine, Hang
from retouch.client import AsyncRetouch, Retouch
from retouch.client.errors import (
    InvalidOption,
    JobCancelled,
    JobFailed,
    JobUnfinished,
    NotFound,
    Unauthorised,
    Unavailable,
    UnsupportedType,
)
from retouch.client.png import encode_png
from tests.retouch.client.conftest import Ask
from tests.serving.key_files import add_key
from tests.serving.local_server import Running, serving
from tests.serving.waiting import until, wait_until


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def test_a_hole_is_filled_and_the_rest_comes_back_as_it_was(
    ask: Ask, server: Running, photo: bytes, mask: bytes
) -> None:
    result = ask(server.url, "inpaint", photo, mask, request_id="r1")
    hole = pixels(mask) > 0
    assert np.array_equal(pixels(result.bytes)[~hole], pixels(photo)[~hole])
    assert not np.array_equal(pixels(result.bytes)[hole], pixels(photo)[hole])
    assert (result.model, result.engine, result.request_id) == ("photos/1", "fake/fp32", "r1")
    assert result.mask_coverage == pytest.approx(hole.mean())
    assert result.timings_ms.keys() >= {"decode", "queue", "infer", "encode"}
    assert result.seed is None


def test_arrays_images_and_files_give_the_same_picture(
    ask: Ask, server: Running, photo: bytes, mask: bytes, tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(photo)
    by_bytes = ask(server.url, "inpaint", photo, mask)
    by_array = ask(server.url, "inpaint", pixels(photo), pixels(mask) > 0)
    by_image = ask(server.url, "inpaint", Image.open(io.BytesIO(photo)), mask)
    by_path = ask(server.url, "inpaint", tmp_path / "photo.png", mask)
    assert by_bytes.bytes == by_array.bytes == by_image.bytes == by_path.bytes
    assert by_path.image.size == (64, 64)
    assert by_path.save(tmp_path / "filled.png").read_bytes() == by_path.bytes


def test_options_reach_the_server(ask: Ask, server: Running, photo: bytes) -> None:
    result = ask(server.url, "translate", photo, format="jpeg", quality=70, save=False, priority=9, deadline_s=60)
    assert result.picture.media_type == "image/jpeg"
    assert result.bytes.startswith(b"\xff\xd8")
    assert (result.url, result.model) == (None, "facades/1")


def test_several_samples_are_several_pictures_of_one_seed(ask: Ask, server: Running, photo: bytes, mask: bytes) -> None:
    result = ask(server.url, "inpaint", photo, mask, model="diverse", samples=3, seed=5)
    assert len({picture.bytes for picture in result.pictures}) == 3
    assert result.seed == 5
    assert (
        ask(server.url, "generate", count=2, seed=5).pictures != ask(server.url, "generate", count=2, seed=6).pictures
    )


def test_a_stored_result_is_read_with_what_its_sidecar_says(
    ask: Ask, server: Running, photo: bytes, mask: bytes
) -> None:
    made = ask(server.url, "inpaint", photo, mask, model="diverse", seed=5, request_id="r2")
    stored = ask(server.url, "result", made.url)
    assert (stored.bytes, stored.url, stored.seed) == (made.bytes, made.url, 5)
    assert (stored.model, stored.engine, stored.request_id) == ("diverse/1", made.engine, "r2")
    with pytest.raises(NotFound) as missing:
        ask(server.url, "result", "0" * 32)
    assert (missing.value.code, missing.value.retryable) == ("not_found", False)


def test_models_are_listed_with_what_they_take(ask: Ask, server: Running) -> None:
    models = {model.reference: model for model in ask(server.url, "models")}
    assert set(models) == {"photos/1", "facades/1", "faces/1", "diverse/1"}
    photos = models["photos/1"]
    assert (photos.state, photos.task, photos.engine, photos.reason) == ("ready", "inpaint", "fake/fp32", None)
    assert photos.takes["endpoint"] == "/v1/inpaint"


def test_an_unknown_option_is_refused_by_its_name(ask: Ask, server: Running, photo: bytes) -> None:
    with pytest.raises(InvalidOption, match="sede") as refused:
        ask(server.url, "translate", photo, sede=7)
    assert refused.value.request_id


def test_the_same_idempotency_key_gives_the_same_answer_once(
    ask: Ask, server: Running, photo: bytes, mask: bytes
) -> None:
    options = {"model": "diverse", "idempotency_key": f"own-{ask.__name__}"}
    first, second = (ask(server.url, "inpaint", photo, mask, **options) for _ in range(2))
    assert first.pictures == second.pictures
    assert ask(server.url, "inpaint", photo, mask, model="diverse").pictures[0].bytes != first.bytes


@pytest.mark.parametrize("timeout_s", [1e300, math.inf])
def test_the_timeout_may_be_as_long_as_one_likes(server: Running, photo: bytes, mask: bytes, timeout_s: float) -> None:
    with Retouch(server.url, timeout_s=timeout_s) as client:
        assert client.inpaint(photo, mask).bytes


@pytest.mark.parametrize("retry", [-1, "x", 2.5, None])
@pytest.mark.parametrize("client", [Retouch, AsyncRetouch])
def test_a_number_of_retries_that_is_none_is_named(client: type[Retouch] | type[AsyncRetouch], retry: Any) -> None:
    with pytest.raises(ValueError, match=rf"retry is {retry!r}; pass a number of retries from 0, or a RetryPolicy"):
        client(retry=retry)


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan])
@pytest.mark.parametrize("client", [Retouch, AsyncRetouch])
def test_a_timeout_that_is_none_is_named(client: type[Retouch] | type[AsyncRetouch], timeout_s: float) -> None:
    with pytest.raises(ValueError, match=r"timeout_s is .*; pass seconds above 0"):
        client(timeout_s=timeout_s)


def test_a_key_is_passed_or_found_in_the_environment(
    ask: Ask, tmp_path: Path, models_dir: Path, photo: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = add_key(tmp_path / "keys.json")
    with serving(tmp_path, models_dir=models_dir, keys_file=str(tmp_path / "keys.json")) as running:
        with pytest.raises(Unauthorised) as refused:
            ask(running.url, "translate", photo)
        assert refused.value.code == "no_key"
        assert ask(running.url, "translate", photo, client={"api_key": key}).model == "facades/1"
        monkeypatch.setenv("RETOUCH_API_KEY", key)
        assert ask(running.url, "translate", photo).model == "facades/1"


class TestJobs:
    def test_a_job_is_waited_for_and_its_result_is_that_of_the_call(
        self, server: Running, photo: bytes, mask: bytes
    ) -> None:
        with Retouch(server.url) as client:
            job = client.submit("inpaint", photo, mask, model="diverse", samples=2, seed=3)
            result = job.wait(60)
            direct = client.inpaint(photo, mask, model="diverse", samples=2, seed=3)
            assert [picture.bytes for picture in result.pictures] == [picture.bytes for picture in direct.pictures]
            assert (result.model, result.seed) == ("diverse/1", 3)
            assert client.job(job.id).status().status == "succeeded"
            assert job.status().result_urls == tuple(picture.url for picture in result.pictures)

    async def test_a_job_is_awaited(self, server: Running, photo: bytes) -> None:
        async with AsyncRetouch(server.url) as client:
            jobs = await asyncio.gather(*(client.submit("generate", count=2, seed=seed) for seed in (1, 2)))
            first, second = await asyncio.gather(*(job.wait(60) for job in jobs))
            assert len(first.pictures) == len(second.pictures) == 2
            assert (first.seed, second.seed) == (1, 2)
            translated = await client.submit("translate", photo)
            assert (await translated.wait()).model == "facades/1"
            assert (await translated.cancel()).status == "succeeded"
            assert (await client.job(translated.id).status()).ended

    def test_a_job_that_fails_raises_its_problem(self, server: Running, mask: bytes) -> None:
        with Retouch(server.url) as client:
            job = client.submit("inpaint", b"GIF89a nonsense", mask)
            with pytest.raises(JobFailed, match=f"job {job.id} failed: unsupported_type: ") as failed:
                job.wait(60)
        assert (failed.value.status, failed.value.code, failed.value.retryable) == (415, "unsupported_type", False)
        assert failed.value.job_id == job.id

    def test_a_bad_picture_of_a_direct_call_is_refused_by_its_status(self, server: Running, mask: bytes) -> None:
        with Retouch(server.url) as client, pytest.raises(UnsupportedType):
            client.inpaint(b"GIF89a nonsense", mask)


@pytest.fixture
def gate() -> Iterator[Event]:
    """An event that every batch of `held` waits for after the warm-up."""
    event = Event()
    event.set()
    yield event
    event.set()


@pytest.fixture
def held(tmp_path: Path, models_dir: Path, gate: Event) -> Iterator[Running]:
    """A server that admits two requests at once, and whose batches wait for the gate."""

    def fake(manifest: object) -> FakeEngine:
        return FakeEngine(manifest, fault=lambda _: None if gate.is_set() else Hang(gate))

    with serving(tmp_path, fake, models_dir=models_dir, max_queue_size=2) as running:
        gate.clear()
        yield running
        gate.set()


def test_a_job_that_is_not_done_in_time_goes_on_and_one_that_is_cancelled_does_not(
    held: Running, gate: Event, photo: bytes
) -> None:
    with Retouch(held.url) as client:
        slow, unwanted = client.submit("translate", photo), client.submit("translate", photo)
        with pytest.raises(JobUnfinished):
            slow.wait(0.3)
        assert unwanted.cancel().status == "cancelled"
        with pytest.raises(JobCancelled):
            unwanted.wait(10)
        gate.set()
        assert slow.wait(60).model == "facades/1"


def test_a_request_to_a_full_server_is_retried_until_it_is_admitted(held: Running, gate: Event, photo: bytes) -> None:
    with Retouch(held.url, retry=0) as client:
        threads = [Thread(target=client.translate, args=(photo,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: held.service.admission.in_flight == 2)
        with pytest.raises(Unavailable) as refused:
            client.translate(photo)
        assert refused.value.code == "overloaded"
        assert refused.value.retry_after_s is not None
        gate.set()
        with Retouch(held.url, retry=20) as patient:
            assert patient.translate(photo).model == "facades/1"
        for thread in threads:
            thread.join(60)


async def test_a_cancelled_call_frees_its_slot(held: Running, photo: bytes) -> None:
    async with AsyncRetouch(held.url) as client:
        calls = [asyncio.create_task(client.translate(photo)) for _ in range(2)]
        await until(lambda: held.service.admission.in_flight == 2)
        calls[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[1]
        await until(lambda: held.service.admission.in_flight == 1)
        calls[0].cancel()
        await asyncio.gather(*calls, return_exceptions=True)


def test_threads_share_a_client(server: Running, photo: bytes) -> None:
    mask = encode_png(np.eye(64, dtype=np.bool_))
    found: list[bytes] = []
    with Retouch(server.url) as client:
        threads = [Thread(target=lambda: found.append(client.inpaint(photo, mask).bytes)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(found) == 8
    assert len(set(found)) == 1
