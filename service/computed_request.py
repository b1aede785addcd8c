"""A request during its computation, and its steps after it: postprocess, texture, encode, spool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import NamedTuple

from engines.manifest import Manifest
from service.batching.backend import BackendModel
from service.core.batch_rows import ComputedSample
from service.core.call import Call, Timings
from service.core.errors import Cancelled
from service.core.order import Order
from service.core.pictures import Picture
from service.core.reply import Encoded, Reply
from service.imaging.files import codec
from service.imaging.mask_plan import Headers
from service.imaging.pool.parallel_steps import StepRunner
from service.imaging.several_results import tiles_of_result
from service.imaging.tasks import DecodingCost, PreparedRequest, timed_stage
from service.imaging.texture.patch_match import Kernel, StoppableKernel
from service.imaging.texture.windows import copy_texture
from service.saving.results import SpoolReservation, StoredResult
from service.saving.sidecar import sidecar_of
from service.saving.store import ResultStore
from service.telemetry.tracing import StageTrace

_ABANDONED = "nobody waits for the answer"


def smallest_tile_pixels(manifest: Manifest) -> int:
    """Return the number of pixels of the smallest tile that the model accepts."""
    height, width = next(manifest.size.tile_sizes())
    return height * width


@dataclass(frozen=True, slots=True)
class RequestToCompute:
    """A request that holds the lease of its model and its share of memory.

    Used as a `with` block inside both; the end of the block stops `work_ahead`.
    """

    order: Order
    headers: Headers
    model: BackendModel
    call: Call
    timings: Timings
    weight: DecodingCost
    trace: StageTrace | None
    _ended: Event = field(default_factory=Event, init=False)

    def __enter__(self) -> RequestToCompute:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def work_ahead(self, prepared: PreparedRequest) -> Iterator[None]:
        """Return the steps that need no computed tile; they stop when the block ends, which releases the memory."""
        return prepared.work_ahead(self._ended.is_set)

    @property
    def effort(self) -> int:
        """Cost of preparing the request, in pixels of a plain JPEG: at least the pixels of the smallest tile."""
        return max(self.weight.effort, smallest_tile_pixels(self.model.manifest))


class Finished(NamedTuple):
    """A finished picture."""

    body: bytes
    """The bytes of its file."""
    textured: bool
    """Whether texture was copied into it."""


@dataclass(frozen=True, slots=True)
class ComputedRequest:
    """The computed samples of a request and its last steps: postprocess, texture, encode, spool. All steps block."""

    order: Order
    call: Call
    model: BackendModel
    prepared: PreparedRequest
    seed: int | None
    computed: list[ComputedSample]
    timings: Timings
    store: ResultStore
    reserved: list[SpoolReservation]
    """Spool reservations, one for each picture; empty if nothing is saved."""
    new_id: Callable[[], str]
    trace: StageTrace | None
    texture: Kernel | None
    """Copies texture into the fills; None if it was not requested."""
    stored: Future[Reply | None] = field(default_factory=Future)
    """The reply once its pictures are stored, or None if that failed. It can be cancelled until storing begins: then
    texture, which takes seconds, stops, and nothing is stored."""

    def encode_and_spool(self, run_steps: StepRunner) -> Reply:
        """Run all steps for a single picture."""
        return self.spool([self.encode(0, self.timings, run_steps)])

    def encode(self, index: int, timings: Timings, run_steps: StepRunner) -> Finished:
        """Finish and encode the picture of this index.

        Raises:
            Cancelled: the request was abandoned.
        """
        self._stop_if_abandoned()
        with timed_stage(timings, "postprocess"):
            tiles = [done.tile for done in self.computed]
            own = tiles_of_result(tiles, self.model.manifest, self.order.options.pictures, index)
            picture = self.prepared.finish(own)
        copied = self._copy_texture(picture, timings, run_steps)
        with timed_stage(timings, "encode"):
            order, ahead = self.order, self.prepared.strips()
            body = codec.encode(picture, order.format, order.options.quality, run_steps, ahead)
        return Finished(body, copied)

    def _copy_texture(self, picture: Picture, timings: Timings, run_steps: StepRunner) -> bool:
        plan = self.prepared.texture
        if self.texture is None or plan is None:
            return False
        with timed_stage(timings, "texture"):
            kernel = StoppableKernel(self.texture, self._stop_if_abandoned)
            return copy_texture(picture, plan, kernel, run_steps=run_steps)

    def _stop_if_abandoned(self) -> None:
        if self.stored.cancelled():
            raise Cancelled(_ABANDONED)

    def spool(self, finished: Sequence[Finished]) -> Reply:
        """Write the pictures to the spool, if they are saved, and return the reply; an error fails the request.

        Raises:
            Cancelled: the request was abandoned.
        """
        if not self.stored.set_running_or_notify_cancel():
            raise Cancelled(_ABANDONED)
        reply = None
        try:
            reply = self._spool(finished)
        finally:
            self.stored.set_result(reply)  # not the error, whose traceback leads to the pictures
        return reply

    def _spool(self, finished: Sequence[Finished]) -> Reply:
        copied = any(one.textured for one in finished)
        result_id = self.call.result_id or (lambda _: self.new_id())
        reply = Reply(
            pictures=tuple(
                Encoded(one.body, result_id(index) if self.reserved else None) for index, one in enumerate(finished)
            ),
            media_type=codec.MEDIA_TYPES[self.order.format],
            size=self.prepared.size,
            model=self.model.manifest.key,
            engine=f"{self.model.engine.name}/{self.model.engine.precision}",
            batch_size=max(done.batch_size for done in self.computed),
            coverage=self.prepared.coverage,
            seed=self.seed,
            timings=self.timings,
            texture=None if self.texture is None else "copied" if copied else "none",
        )
        on_saved = partial(self.trace.stage_ended, "save") if self.trace is not None else None
        for index, (picture, reservation) in enumerate(zip(reply.pictures, self.reserved, strict=False)):
            if picture.result_id:
                sidecar = sidecar_of(reply, index, self.order, self.call)
                result = StoredResult(picture.result_id, picture.body, reply.media_type, sidecar, on_saved)
                self.store.put(reservation, result)
        return reply
