from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest

from engines.cuda.api import Cuda
from engines.errors import DeviceLost, EngineFailed, EngineOutOfMemory, EngineUnavailable
from engines.manifest import Manifest
from service.devices.pictures.lane import PictureLane
from service.devices.pictures.lane_pool import LanePool
from service.devices.pictures.lane_thread import LaneOptions, LaneThread, QueuedPicture
from tests.fakes.clock import Clock
from tests.fakes.cuda import FakeRuntime, Status
from tests.fakes.jpeg_planes import FakePlanesDecoder
from tests.service.devices.pictures.pool_cases import TIMEOUT_S, OpenLanePool, Request, make_request


@pytest.fixture
def request_of(fake_manifest: Callable[..., Manifest]) -> Callable[..., Request]:
    manifest = fake_manifest("photos", "inpaint")

    def make(seed: int = 0, **options: Any) -> Request:
        return make_request(manifest, seed, **options)

    return make


def test_pictures_come_back_as_from_the_cpu(open_lane_pool: OpenLanePool, request_of: Callable[..., Request]) -> None:
    pool = open_lane_pool(lanes=2, pictures=4)
    requests = [request_of(seed) for seed in range(12)]
    assert {len(request.crops) for request in requests} > {1}, "some have several crops"
    for first in range(0, 12, 4):
        some = requests[first : first + 4]
        for request, picture in [(request, request.hand_to(pool)) for request in some]:
            picture.cut.result(TIMEOUT_S)
            request.paste(picture)
            picture.end().result(TIMEOUT_S)
            request.assert_as_on_the_cpu()
    assert not pool.broken


def test_waiting_pictures_are_decoded_together(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(batch=4)
    decoder.gate.clear()
    first = request_of(0).hand_to(pool)
    assert decoder.waiting.wait(TIMEOUT_S)
    others = [request_of(seed).hand_to(pool) for seed in range(1, 7)]
    decoder.gate.set()
    for picture in (first, *others):
        picture.cut.result(TIMEOUT_S)
    assert decoder.batches == [1, 4, 2]


def test_a_file_that_the_hardware_refuses_fails_alone(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool()
    decoder.gate.clear()
    requests = [request_of(seed) for seed in range(4)]
    decoder.refused = {requests[2].data}
    pictures = [request.hand_to(pool) for request in requests]
    decoder.gate.set()
    errors = [picture.cut.exception(TIMEOUT_S) for picture in pictures]
    assert [type(error) for error in errors] == [type(None), type(None), EngineFailed, type(None)]
    requests[3].paste(pictures[3])
    requests[3].assert_as_on_the_cpu()
    assert isinstance(pictures[2].paste(requests[2].fills, requests[2].result).exception(TIMEOUT_S), EngineFailed)


def test_a_decoder_without_memory_fails_its_picture_and_no_later_one(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(pictures=1)
    decoder.fail = [EngineOutOfMemory("nvjpegDecodeBatched: out of memory")]
    failed = request_of(0).hand_to(pool)
    assert isinstance(failed.cut.exception(TIMEOUT_S), EngineOutOfMemory)
    failed.end().result(TIMEOUT_S)
    request_of(1).hand_to(pool).cut.result(TIMEOUT_S)
    assert not pool.broken


def test_a_gpu_without_memory_for_a_picture_fails_it_and_no_later_one(
    open_lane_pool: OpenLanePool, runtime: FakeRuntime, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(pictures=1)
    runtime.fail["cudaMalloc"] = Status.cudaErrorMemoryAllocation
    failed = request_of(0).hand_to(pool)
    assert isinstance(failed.cut.exception(TIMEOUT_S), EngineOutOfMemory)
    failed.end().result(TIMEOUT_S)
    request_of(1).hand_to(pool).cut.result(TIMEOUT_S)


def test_a_gpu_that_is_lost_in_mid_batch_answers_all_and_refuses_later_ones(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, runtime: FakeRuntime, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(pictures=3)
    decoder.gate.clear()
    pictures = [request_of(seed).hand_to(pool) for seed in range(5)]
    assert decoder.waiting.wait(TIMEOUT_S)
    runtime.fail["cudaEventSynchronize"] = Status.cudaErrorIllegalAddress
    decoder.gate.set()
    assert {type(picture.cut.exception(TIMEOUT_S)) for picture in pictures} == {DeviceLost}
    assert "cudaErrorIllegalAddress" in pool.broken
    late = request_of(9).hand_to(pool)
    assert isinstance(late.cut.exception(TIMEOUT_S), DeviceLost)
    assert not wait([picture.end() for picture in (*pictures, late)], TIMEOUT_S).not_done


def test_a_decode_that_is_stuck_is_answered_and_its_memory_kept_until_it_returns(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, clock: Clock, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(batch=1)
    decoder.gate.clear()
    stuck, waiting = request_of(0).hand_to(pool), request_of(1).hand_to(pool)
    assert decoder.waiting.wait(TIMEOUT_S)
    pool.check(limit_s=5)
    assert not stuck.cut.done()
    clock.now += 6
    pool.check(limit_s=5)
    for picture in (stuck, waiting):
        assert "5 s" in str(picture.cut.exception(TIMEOUT_S))
    assert isinstance(request_of(2).hand_to(pool).cut.exception(TIMEOUT_S), EngineFailed)
    waiting.end().result(TIMEOUT_S)
    ended = stuck.end()
    assert not ended.done()
    decoder.gate.set()
    ended.result(TIMEOUT_S)


def test_a_client_that_leaves_while_its_picture_is_decoded_is_waited_for(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(pictures=1)
    decoder.gate.clear()
    left = request_of(0).hand_to(pool)
    assert decoder.waiting.wait(TIMEOUT_S)
    ended = left.end()
    next_one = request_of(1).hand_to(pool)
    assert not ended.done()
    decoder.gate.set()
    ended.result(TIMEOUT_S)
    next_one.cut.result(TIMEOUT_S)


def test_a_picture_that_is_given_up_while_it_waits_is_never_decoded(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(batch=1)
    decoder.gate.clear()
    pictures = [request_of(seed).hand_to(pool) for seed in range(3)]
    assert decoder.waiting.wait(TIMEOUT_S)
    pictures[1].end().result(TIMEOUT_S)
    decoder.gate.set()
    pictures[2].cut.result(TIMEOUT_S)
    assert pictures[1].cut.cancelled()
    assert len(decoder.batches) == 2


def test_a_lane_is_full_when_its_pictures_need_its_memory(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(lanes=2, nbytes=1)
    decoder.gate.clear()
    first = request_of(0).hand_to(pool)
    assert not pool.full, "the other lane is free"
    second = request_of(1).hand_to(pool)
    assert pool.full
    decoder.gate.set()
    for picture in (first, second):
        picture.cut.result(TIMEOUT_S)
    first.end().result(TIMEOUT_S)
    assert not pool.full
    assert second.end().result(TIMEOUT_S) is None


def test_pictures_beyond_the_places_wait_until_one_ends(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(pictures=2)
    decoder.gate.clear()
    pictures = [request_of(seed).hand_to(pool) for seed in range(4)]
    assert pool.full
    decoder.gate.set()
    for picture in pictures[:2]:
        picture.cut.result(TIMEOUT_S)
    assert decoder.batches in ([1, 1], [2])
    assert not pictures[2].cut.done()
    pictures[0].end().result(TIMEOUT_S)
    pictures[2].cut.result(TIMEOUT_S)
    assert sum(decoder.batches) == 3


def test_a_fault_of_a_kernel_fails_the_paste_only(
    open_lane_pool: OpenLanePool, kernels: Any, request_of: Callable[..., Request]
) -> None:
    pool, request = open_lane_pool(), request_of(0)
    picture = request.hand_to(pool)
    picture.cut.result(TIMEOUT_S)
    kernels.fail["paste"] = EngineFailed("cuLaunchKernel: CUDA_ERROR_INVALID_VALUE")
    assert isinstance(picture.paste(request.fills, request.result).exception(TIMEOUT_S), EngineFailed)
    request.paste(picture)
    request.assert_as_on_the_cpu()


def test_a_lane_that_does_not_open_refuses_pictures_and_says_why(
    cuda: Cuda, clock: Clock, request_of: Callable[..., Request]
) -> None:
    def unavailable(_: Cuda) -> PictureLane:
        raise EngineUnavailable("this GPU has no JPEG decoder in hardware")

    pool = LanePool(cuda, 2, LaneOptions(unavailable, 4, 4, clock))
    picture = request_of(0).hand_to(pool)
    assert isinstance(picture.cut.exception(TIMEOUT_S), EngineUnavailable)
    assert pool.broken == "this GPU has no JPEG decoder in hardware"
    pool.close()


def test_a_fault_while_a_lane_opens_refuses_pictures_and_says_why(
    cuda: Cuda, clock: Clock, request_of: Callable[..., Request]
) -> None:
    def faulty(_: Cuda) -> PictureLane:
        raise RuntimeError("a symbol is missing")

    pool = LanePool(cuda, 2, LaneOptions(faulty, 4, 4, clock))
    assert isinstance(request_of(0).hand_to(pool).cut.exception(TIMEOUT_S), EngineFailed)
    assert "a symbol is missing" in pool.broken
    pool.close()


def test_a_lane_that_hangs_after_another_has_lost_the_gpu_is_found_stuck(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, clock: Clock, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool()
    decoder.gate.clear()
    hanging = request_of(0).hand_to(pool)
    assert decoder.waiting.wait(TIMEOUT_S)
    pool.stop(DeviceLost("another lane has lost it"))
    assert isinstance(hanging.cut.exception(TIMEOUT_S), DeviceLost)
    clock.now += 6
    pool.check(limit_s=5)
    assert pool.stuck


class CancelledJustNow(Future[None]):
    """An answer that its owner cancels after it was seen to be open."""

    def done(self) -> bool:
        self.cancel()
        return False


def test_a_picture_that_is_cancelled_while_all_are_refused_does_not_keep_others_from_their_answers(
    cuda: Cuda, kernels: Any, decoder: FakePlanesDecoder, clock: Clock, request_of: Callable[..., Request]
) -> None:
    decoder.gate.clear()
    thread = LaneThread(cuda, LaneOptions(lambda gpu: PictureLane(gpu, decoder, kernels), 1, 4, clock), lambda _: None)
    pictures = [QueuedPicture(one.work, one.tiles, one.masks) for one in map(request_of, range(3))]
    pictures[1].cut = CancelledJustNow()
    for picture in pictures:
        thread.add(picture)
    assert decoder.waiting.wait(TIMEOUT_S)
    thread.refuse_all(EngineFailed("the lane is stuck"))
    assert isinstance(pictures[2].cut.exception(TIMEOUT_S), EngineFailed)
    decoder.gate.set()
    thread.leave(TIMEOUT_S)


def test_a_closed_pool_has_freed_everything(
    open_lane_pool: OpenLanePool, decoder: FakePlanesDecoder, runtime: FakeRuntime, request_of: Callable[..., Request]
) -> None:
    pool = open_lane_pool(lanes=2)
    requests = [request_of(seed) for seed in range(4)]
    for request, picture in [(request, request.hand_to(pool)) for request in requests]:
        picture.cut.result(TIMEOUT_S)
        request.paste(picture)
        picture.end().result(TIMEOUT_S)
    pool.close()
    assert runtime.alive == 0
    assert decoder.closed


def test_what_the_lanes_share_is_closed_once_and_after_them(
    cuda: Cuda, kernels: Any, decoder: FakePlanesDecoder, clock: Clock
) -> None:
    lanes_were_closed: list[bool] = []
    options = LaneOptions(lambda gpu: PictureLane(gpu, decoder, kernels), 4, 4, clock)
    pool = LanePool(cuda, 2, options, lambda: lanes_were_closed.append(decoder.closed))
    pool.close()
    pool.close()
    assert lanes_were_closed == [True]
