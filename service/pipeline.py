"""The life of a request, in order; the only file that knows this order, stages never import each other.

    codec ─▶ preprocess ─▶ batcher ─▶ device worker ▷ engine ─▶ postprocess ─▶ codec ─▶ store

Decoding, preparing and encoding run on the codec threads, the engine on the device worker's, saving on the store's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from engines.errors import EngineError, ModelError, ModelNotFound
from engines.manifest import Manifest, Task
from engines.repository import ModelRepository
from engines.served import ServedModel
from service import codec, crops, masks, postprocess, preprocess
from service.admission import Admission
from service.batcher import Batcher
from service.errors import InvalidOption, NotFound, NotReady
from service.items import Bool2D, Call, Computed, Crop, ImageFormat, Picture, Reply, Sample, Timings
from service.metrics import Metrics
from service.schemas import InpaintOptions, TranslateOptions
from service.settings import Settings
from service.store import Reservation, ResultStore, StoredResult

T = TypeVar("T")
Options = InpaintOptions | TranslateOptions
_ENCODED_OVER_UPLOAD = 4
"""Room reserved in the spool for a result, in multiples of the upload: a PNG of what may have come as a JPEG."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A decoded request: what goes to the engine, and what is needed to finish it."""

    picture: Picture
    crops: list[Crop]
    samples: list[Sample]
    mask: Bool2D | None
    coverage: float | None


@dataclass(slots=True, eq=False)
class Pipeline:
    """Turns uploads into replies. Used on the event loop; everything it needs is handed in."""

    settings: Settings
    repository: ModelRepository
    batcher: Batcher
    store: ResultStore
    admission: Admission
    metrics: Metrics
    codec_threads: Executor
    clock: Callable[[], float]
    new_id: Callable[[], str]

    async def inpaint(self, image: bytes, mask: bytes, options: InpaintOptions, call: Call) -> Reply:
        """Fill the masked part of an image; pixels outside the mask are returned bit-identical.

        Raises:
            NotFound, InvalidOption: the model is not there, or is of another task.
            Overloaded: the spool is full.
            UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: image or mask, before engine work.
            DeadlineExceeded, InferenceFailed, NotReady, ShuttingDown: from the batcher.
        """
        with self._reserve(options, len(image)) as reservation:
            async with self._model(options.model or self.settings.inpaint_model, "inpaint") as model:
                timings, limit = Timings(), self.settings.max_pixels
                prepared = await self.on_codec_thread(
                    _prepare_inpaint, image, mask, options, model.manifest, limit, timings
                )
                return await self._compute(prepared, model, options, call, timings, reservation)

    async def translate(self, image: bytes, options: TranslateOptions, call: Call) -> Reply:
        """Turn an image into the model's other domain, at the image's own size. Raises as `inpaint`."""
        with self._reserve(options, len(image)) as reservation:
            async with self._model(options.model or self.settings.translate_model, "translate") as model:
                timings, limit = Timings(), self.settings.max_pixels
                prepared = await self.on_codec_thread(
                    _prepare_translate, image, options, model.manifest, limit, timings
                )
                return await self._compute(prepared, model, options, call, timings, reservation)

    async def _compute(
        self,
        prepared: _Prepared,
        model: ServedModel,
        options: Options,
        call: Call,
        timings: Timings,
        reservation: Reservation | None,
    ) -> Reply:
        computed = await self._submit_all(prepared.samples, model, call)
        timings.add("queue", max(done.queue_s for done in computed))
        timings.add("infer", max(done.infer_s for done in computed))
        output_format = options.format or "png"
        body = await self.on_codec_thread(
            _finish, prepared, computed, model.manifest, output_format, options.quality, timings
        )
        self._observe(computed, timings)
        reply = Reply(
            body=body,
            media_type=codec.MEDIA_TYPES[output_format],
            size=prepared.picture.size,
            model=model.manifest.key,
            engine=f"{model.engine.name}/{model.engine.precision}",
            batch_size=max(done.batch_size for done in computed),
            coverage=prepared.coverage,
            timings=timings,
            result_id=self.new_id() if reservation else None,
        )
        if reservation and reply.result_id:
            self.store.put(
                reservation, StoredResult(reply.result_id, body, reply.media_type, _sidecar(reply, options, call))
            )
        return reply

    async def _submit_all(self, samples: list[Sample], model: ServedModel, call: Call) -> list[Computed]:
        if len(samples) == 1:
            return [await self.batcher.submit(samples[0], model, call.deadline)]
        tasks = [asyncio.ensure_future(self.batcher.submit(s, model, call.deadline)) for s in samples]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:  # one crop failed or the client left: the others are withdrawn from the queue
                task.cancel()

    @asynccontextmanager
    async def _model(self, reference: str, task: Task) -> AsyncIterator[ServedModel]:
        name, _, version = reference.partition("/")
        with ExitStack() as stack:
            lease = self.repository.lease(name, int(version) if version else None)
            try:  # an older version is loaded on its first lease, which blocks
                served = await asyncio.to_thread(stack.enter_context, lease) if version else stack.enter_context(lease)
            except ModelNotFound as error:
                raise NotFound(str(error), code="model_not_found") from error
            except (ModelError, EngineError) as error:
                raise NotReady(f"model {reference} cannot be loaded: {error}", code="model_refused") from error
            if served.manifest.task != task:
                raise InvalidOption(f"model {reference} is for {served.manifest.task}, not {task}", code="wrong_task")
            yield served

    @contextmanager
    def _reserve(self, options: Options, upload_bytes: int) -> Iterator[Reservation | None]:
        save = self.settings.save if options.save is None else options.save
        with self.store.reserve(upload_bytes * _ENCODED_OVER_UPLOAD) if save else nullcontext() as reservation:
            yield reservation

    async def on_codec_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.codec_threads, function, *args)

    def _observe(self, computed: list[Computed], timings: Timings) -> None:
        self.admission.observe(sum(done.infer_s / done.batch_size for done in computed))
        for stage, seconds in timings.stages.items():
            self.metrics.stage.labels(stage).observe(seconds)


def _prepare_inpaint(
    image: bytes, mask: bytes, options: InpaintOptions, manifest: Manifest, max_pixels: int, timings: Timings
) -> _Prepared:
    with _timed(timings, "decode"):
        picture = _decode(image, options, max_pixels)
        hole = codec.decode_mask(mask, options.mask_mode, max_pixels=max_pixels)
    with _timed(timings, "preprocess"):
        hole = masks.fit_mask(hole, picture.size, options.mask_resize)
        coverage = masks.measure_coverage(hole, options.mask_mode)
        plan = crops.plan(hole, manifest.size, options.strategy)
        samples = [preprocess.inpaint_sample(picture, hole, crop, manifest) for crop in plan]
    return _Prepared(picture, plan, samples, hole, coverage)


def _prepare_translate(
    image: bytes, options: TranslateOptions, manifest: Manifest, max_pixels: int, timings: Timings
) -> _Prepared:
    with _timed(timings, "decode"):
        picture = _decode(image, options, max_pixels)
    with _timed(timings, "preprocess"):
        crop = crops.plan_whole(picture.size, manifest.size)
        samples = [preprocess.translate_sample(picture, crop, manifest)]
    return _Prepared(picture, [crop], samples, None, None)


def _decode(image: bytes, options: Options, max_pixels: int) -> Picture:
    picture = codec.decode(image, max_pixels=max_pixels)
    codec.check_encodable(picture.size, options.format or "png")  # now, and not after it was computed
    return picture


def _finish(
    prepared: _Prepared,
    computed: list[Computed],
    manifest: Manifest,
    output_format: ImageFormat,
    quality: int,
    timings: Timings,
) -> bytes:
    with _timed(timings, "postprocess"):
        tiles = [done.tile for done in computed]
        if prepared.mask is None:
            picture = postprocess.translated(prepared.picture, prepared.crops[0], tiles[0], manifest)
        else:
            picture = postprocess.paste(prepared.picture, prepared.mask, prepared.crops, tiles)
    with _timed(timings, "encode"):
        return codec.encode(picture, output_format, quality)


def _sidecar(reply: Reply, options: Options, call: Call) -> dict[str, Any]:
    return {
        "request_id": call.request_id,
        "model": reply.model,
        "engine": reply.engine,
        "options": options.model_dump(exclude_none=True),
        "width": reply.size.width,
        "height": reply.size.height,
        "mask_coverage": reply.coverage,
        "batch_size": reply.batch_size,
        "timings_ms": {stage: round(seconds * 1e3, 3) for stage, seconds in reply.timings.stages.items()},
    }


@contextmanager
def _timed(timings: Timings, stage: str) -> Iterator[None]:
    started = perf_counter()
    yield
    timings.add(stage, perf_counter() - started)
