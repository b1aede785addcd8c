"""The life of a request, in order; the only file that knows this order, stages never import each other.

    codec ─▶ preprocess ─▶ batcher ─▶ device worker ▷ engine ─▶ postprocess ─▶ codec ─▶ store

What differs between the tasks is in imaging/tasks.py. Decoding, preparing and encoding run on the codec threads or the
event loop's (imaging/pool/work.py), the engine on the device worker's, saving on the store's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from engines.errors import EngineError, ModelError, ModelNotFound
from engines.manifest import Manifest, Task
from service.admission.admission import Admission
from service.batching.backend import Leased, Models, Submits
from service.core.errors import InvalidOption, NotFound, NotReady
from service.core.items import Call, Computed, Encoded, ImageFormat, Reply, Sample, Timings
from service.core.order import Order
from service.core.schemas import GenerateOptions, InpaintOptions, Options, TranslateOptions
from service.core.settings import Settings
from service.imaging import latents, tasks
from service.imaging.files import codec
from service.imaging.memory_stage import DecodedMemory
from service.imaging.model_inputs import refusal
from service.imaging.pool.parallel_steps import SideBySide
from service.imaging.pool.work import CodecWork
from service.imaging.tasks import Prepared, Tile, Uploads, Weight, timed
from service.saving.results import Reservation, StoredResult
from service.saving.sidecar import sidecar_of
from service.saving.store import ResultStore
from service.telemetry.metrics import Metrics
from service.telemetry.redaction import without_folders
from service.telemetry.tracing import RequestTracer, StageTrace

Prepare = Callable[[Manifest, Timings, SideBySide], Prepared]
_ENCODED_OVER_UPLOAD = 4
"""Room reserved in the spool for a result, in multiples of the upload: a PNG of what may have come as a JPEG."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What one request wants: which model, how many samples, from which seed; and how its upload is prepared."""

    task: Task
    model: str
    prepare: Prepare
    options: Options
    upload_bytes: int
    weight: Weight
    count: int = 1
    seed: int | None = None


@dataclass(slots=True, eq=False)
class Pipeline:
    """Turns uploads into replies. Used on the event loop; everything it needs is handed in."""

    settings: Settings
    models: Models
    batcher: Submits
    store: ResultStore
    admission: Admission
    metrics: Metrics
    codec_work: CodecWork
    decoded: DecodedMemory
    clock: Callable[[], float]
    new_id: Callable[[], str]
    new_seed: Callable[[], int]
    draw: latents.Draw = latents.draw
    tracer: RequestTracer | None = None
    """None where nobody traces."""

    async def run(self, order: Order, call: Call) -> Reply:
        """The finished pictures of an order. Raises as `inpaint`."""
        files, options = order.files, order.options
        if isinstance(options, InpaintOptions):
            return await self.inpaint(files["image"], files["mask"], options, call)
        if isinstance(options, TranslateOptions):
            others = {name: data for name, data in files.items() if name != "image"}
            return await self.translate(files["image"], options, call, others)
        return await self.generate(options, call)

    async def inpaint(self, image: bytes, mask: bytes, options: InpaintOptions, call: Call) -> Reply:
        """Fill the masked part of an image; pixels outside the mask are returned bit-identical.

        Raises:
            NotFound, InvalidOption: the model is not there, is of another task, cannot be served, or draws nothing
                and more than one sample is wanted.
            Overloaded: the spool is full, or decoded pictures take the memory for longer than the deadline allows.
            UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: image or mask, before engine work.
            DeadlineExceeded, InferenceFailed, NotReady, ShuttingDown: from memory or the batcher.
        """
        uploads = Uploads(image, mask)
        prepare = partial(tasks.prepare_inpaint, uploads, options, self.settings.max_pixels)
        model = self.model_of("inpaint", options.model)
        weight = tasks.weigh(uploads, self.settings.max_pixels)
        order = _Order("inpaint", model, prepare, options, len(image), weight, options.samples, options.seed)
        return await self._reply(order, call)

    async def translate(
        self, image: bytes, options: TranslateOptions, call: Call, others: Mapping[str, bytes] = MappingProxyType({})
    ) -> Reply:
        """Turn an image or a label map into the model's other domain, at its own size.

        `others` are the files that some models take: `instance`, `reference`. Raises as `inpaint`.
        """
        uploads = Uploads(image, instance=others.get("instance"), reference=others.get("reference"))
        prepare = partial(tasks.prepare_translate, uploads, options, self.settings.max_pixels)
        model = self.model_of("translate", options.model)
        weight = tasks.weigh(uploads, self.settings.max_pixels)
        return await self._reply(_Order("translate", model, prepare, options, len(image), weight), call)

    async def generate(self, options: GenerateOptions, call: Call) -> Reply:
        """Make pictures from random numbers alone. Raises as `inpaint`."""
        prepare = partial(tasks.prepare_generate, options)
        model = self.model_of("generate", options.model)
        if not model:
            raise InvalidOption("name a `model`: this server has no --generate-model", code="model_required")
        order = _Order("generate", model, prepare, options, 0, Weight(), options.count, options.seed)
        return await self._reply(order, call)

    def model_of(self, task: Task, asked: str | None) -> str:
        """`name` or `name/version`: what a request names, or the default of its task; empty where there is none."""
        settings = self.settings
        defaults: dict[Task, str] = {
            "inpaint": settings.inpaint_model,
            "translate": settings.translate_model,
            "generate": settings.generate_model,
        }
        return asked or defaults[task]

    async def _reply(self, order: _Order, call: Call) -> Reply:
        async with self._model(order.model, order.task) as model:
            if order.count > 1 and not model.manifest.diverse:
                raise InvalidOption(
                    f"{model.manifest.key} draws nothing: all samples would be the same; ask for one",
                    code="not_diverse",
                )
            trace = self.tracer.follow(call.traceparent) if self.tracer is not None and call.traceparent else None
            timings = Timings(on_ended=trace.stage_ended if trace is not None else None)
            async with self.decoded.held(order.weight, call, timings):
                with self._reserve(order, model.manifest) as room:  # not before: whoever waits takes none from others
                    return await self._fulfil(order, model, room, call, timings, trace)

    async def _fulfil(
        self,
        order: _Order,
        model: Leased,
        room: list[Reservation],
        call: Call,
        timings: Timings,
        trace: StageTrace | None,
    ) -> Reply:
        seed = self._seed(order, model.manifest)
        prepare = partial(order.prepare, model.manifest, timings)
        effort = max(order.weight.effort, _tile_pixels(model.manifest))
        prepared = await self.codec_work.begin(prepare, effort, large=order.weight.large)
        rows = latents.with_latents(prepared.rows, model.manifest, seed or 0, order.count, self.draw)
        computed = await self._submit_all(rows, model, call, trace)
        timings.add("queue", max(done.queue_s for done in computed))
        timings.add("infer", max(done.infer_s for done in computed))

        def finished(bodies: list[bytes]) -> Reply:
            reply = Reply(
                pictures=tuple(Encoded(body, self.new_id() if room else None) for body in bodies),
                media_type=codec.MEDIA_TYPES[order.options.format or "png"],
                size=prepared.size,
                model=model.manifest.key,
                engine=f"{model.engine.name}/{model.engine.precision}",
                batch_size=max(done.batch_size for done in computed),
                coverage=prepared.coverage,
                seed=seed,
                timings=timings,
            )
            self._save(reply, room, order, call, trace)
            return reply

        samples = latents.tiles_by_result([done.tile for done in computed], model.manifest, order.count)
        reply = await self._finish(prepared, order, samples, timings, finished)
        self._observe(computed, timings, order.weight)
        return reply

    def _seed(self, order: _Order, manifest: Manifest) -> int | None:
        """None for a model that draws nothing."""
        if not manifest.diverse:
            return None
        return self.new_seed() if order.seed is None else order.seed

    async def _submit_all(
        self, rows: list[Sample], model: Leased, call: Call, trace: StageTrace | None
    ) -> list[Computed]:
        if len(rows) == 1:
            return [await self._submit(rows[0], model, call, trace)]
        waiting = [asyncio.ensure_future(self._submit(row, model, call, trace)) for row in rows]
        try:
            return list(await asyncio.gather(*waiting))
        finally:
            for one in waiting:  # one row failed or the client left: the others are withdrawn from the queue
                one.cancel()

    async def _submit(self, row: Sample, model: Leased, call: Call, trace: StageTrace | None) -> Computed:
        traced = trace is not None
        done = await self.batcher.submit(row, model, call.deadline, call.on_begun, call.flow, traced=traced)
        if trace is not None:
            trace.computed(done)
        return done

    async def _finish(
        self,
        prepared: Prepared,
        order: _Order,
        samples: list[list[Tile]],
        timings: Timings,
        finished: Callable[[list[bytes]], Reply],
    ) -> Reply:
        """The files of all samples, made side by side, then spooled; of their timings the slowest count.

        A single one is encoded and spooled by one thread: each way to a thread and back costs as much as the write.
        """
        output_format, quality = order.options.format or "png", order.options.quality
        pixels, saves = prepared.size.height * prepared.size.width, self._saves(order)
        finish = self.codec_work.finish
        if len(samples) == 1:
            encode = partial(_encoded, prepared, samples[0], output_format, quality, timings)
            return await finish(
                lambda side_by_side: finished([encode(side_by_side)]), pixels, output_format, writes=saves
            )
        own = [Timings(on_ended=timings.on_ended) for _ in samples]
        bodies = await asyncio.gather(
            *(
                finish(
                    partial(_encoded, prepared, tiles, output_format, quality, its), pixels, output_format, writes=False
                )
                for tiles, its in zip(samples, own, strict=True)
            )
        )
        for stage in ("postprocess", "encode"):
            timings.add(stage, max(its.stages[stage] for its in own))
        return await finish(lambda _: finished(bodies), pixels, output_format, writes=saves)

    def _save(
        self, reply: Reply, room: Sequence[Reservation], order: _Order, call: Call, trace: StageTrace | None
    ) -> None:
        """Spool every picture; what fails here was not promised yet."""
        for index, (picture, reservation) in enumerate(zip(reply.pictures, room, strict=False)):
            if picture.result_id:
                sidecar = sidecar_of(reply, index, order.options, call)
                on_saved = partial(trace.stage_ended, "save") if trace is not None else None
                result = StoredResult(picture.result_id, picture.body, reply.media_type, sidecar, on_saved)
                self.store.put(reservation, result)

    @asynccontextmanager
    async def _model(self, reference: str, task: Task) -> AsyncIterator[Leased]:
        name, _, version = reference.partition("/")
        with ExitStack() as stack:
            lease = self.models.lease(name, int(version) if version else None)
            try:  # an older version is loaded on its first lease, which blocks
                served = await asyncio.to_thread(stack.enter_context, lease) if version else stack.enter_context(lease)
            except ModelNotFound as error:
                raise NotFound(without_folders(str(error)), code="model_not_found") from error
            except (ModelError, EngineError) as error:
                why = without_folders(str(error))
                raise NotReady(f"model {reference} cannot be loaded: {why}", code="model_refused") from error
            if served.manifest.task != task:
                raise InvalidOption(f"model {reference} is for {served.manifest.task}, not {task}", code="wrong_task")
            if reason := refusal(served.manifest):
                raise InvalidOption(reason, code="not_a_picture")
            yield served

    def _saves(self, order: _Order) -> bool:
        return self.settings.save if order.options.save is None else order.options.save

    @contextmanager
    def _reserve(self, order: _Order, manifest: Manifest) -> Iterator[list[Reservation]]:
        """Room in the spool for each result; none where nothing is to be saved."""
        save = self._saves(order)
        estimate = order.upload_bytes * _ENCODED_OVER_UPLOAD or _tile_pixels(manifest) * manifest.output_channels
        with ExitStack() as stack:
            yield [stack.enter_context(self.store.reserve(estimate)) for _ in range(order.count if save else 0)]

    def _observe(self, computed: list[Computed], timings: Timings, weight: Weight) -> None:
        waited_s = timings.stages["queue"] + timings.stages.get("memory", 0.0)
        unloaded_s = None if weight.large else sum(timings.stages.values()) - waited_s
        self.admission.service_rate.learn(((done.batch_size, done.device_s) for done in computed), unloaded_s)
        self.metrics.stages_done(timings.stages)


def _tile_pixels(manifest: Manifest) -> int:
    """Of the smallest tile that the model takes."""
    height, width = next(manifest.size.buckets())
    return height * width


def _encoded(
    prepared: Prepared,
    tiles: list[Tile],
    output_format: ImageFormat,
    quality: int,
    timings: Timings,
    side_by_side: SideBySide,
) -> bytes:
    with timed(timings, "postprocess"):
        picture = prepared.finish(tiles)
    with timed(timings, "encode"):
        return codec.encode(picture, output_format, quality, side_by_side)
