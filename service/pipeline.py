"""The order of the stages of a request. Only this file knows it: the stages never import each other.

    codec ─▶ preprocess ─▶ batcher ─▶ device worker ▷ engine ─▶ postprocess ─▶ texture ─▶ codec ─▶ store

The differences between the tasks are in imaging/tasks.py. Decoding, preparing and encoding run on codec threads or the
event loop's thread (imaging/pool/codec_work.py), the engine on the device worker's, saving on the store's threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

from engines.errors import EngineError, ModelError, ModelNotFound
from engines.manifest import Manifest
from service.admission.admission import Admission
from service.admission.large_and_small_shares import Claim
from service.admission.long_work import LongWork
from service.admission.memory_budget import MemoryBudget
from service.batching.backend import BackendModel, BackendModels, SampleQueue
from service.computed_request import ComputedRequest, RequestToCompute, smallest_tile_pixels
from service.core.batch_rows import ComputedSample, Sample
from service.core.call import Call, Timings
from service.core.errors import InvalidOption, NotFound, NotReady
from service.core.order import Order
from service.core.reply import Reply
from service.core.settings import Settings
from service.imaging.model_inputs import why_not_servable
from service.imaging.pool.codec_work import CodecWork
from service.imaging.pool.parallel_steps import StepRunner
from service.imaging.several_results import Draw, draw_latent, is_diverse, rows_of_results
from service.imaging.tasks import PREPARE, DecodingCost, PreparedRequest, estimate_cost, read_headers
from service.imaging.texture.patch_match import Kernel
from service.lifecycle.background import enter_on_thread
from service.lifecycle.compiled import HOW_TO_INSTALL
from service.saving.promise import StorePromise
from service.saving.results import SpoolReservation
from service.saving.store import ResultStore
from service.telemetry.metrics import Metrics
from service.telemetry.redaction import without_folders
from service.telemetry.tracing import RequestTracer, StageTrace

_ENCODED_OVER_UPLOAD = 4
"""Bytes reserved in the spool for a result, as a multiple of the upload's: a JPEG may be answered with a PNG."""
_STORE_S = 1.0
"""Longest time in seconds that a reply whose results are being stored may be late."""


@dataclass(slots=True, eq=False)
class Pipeline:
    """Turns orders into replies. Used on the event loop; all dependencies are arguments."""

    settings: Settings
    models: BackendModels
    batcher: SampleQueue
    store: ResultStore
    admission: Admission
    metrics: Metrics
    codec_work: CodecWork
    memory: MemoryBudget
    """Budget for the memory of decoded pictures, in bytes."""
    long_work: LongWork
    """Texture copying that waits for a codec thread or runs on one."""
    clock: Callable[[], float]
    new_id: Callable[[], str]
    new_seed: Callable[[], int]
    draw: Draw = draw_latent
    texture: Kernel | None = None
    """Copies texture into fills, where it is installed."""
    tracer: RequestTracer | None = None
    """Tracer of requests; None without tracing."""
    promise: StorePromise | None = None
    """Holds replies back until their results are in the storage; None: a reply is sent once they are in the spool."""

    async def run(self, order: Order, call: Call) -> Reply:
        """Compute the pictures of an order. For inpainting, pixels outside the mask are returned bit-identical.

        Raises:
            NotFound, InvalidOption: the model does not exist, is not named, is of another task, cannot be served, or
                makes one result only and more are requested; texture is requested and not installed.
            Overloaded: the spool is full, or the wait for memory for decoded pictures would exceed the deadline.
            UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: a file cannot be used; raised before
                engine work.
            DeadlineExceeded, InferenceFailed, NotReady, ShuttingDown: raised by the memory budget or the batcher.
            NotReady: code `storage_unavailable`: raised by the store, or by `promise`.
            Cancelled: the client left before the engine began.
        """
        if self.promise is None or not order.is_saved(self.settings.save):
            return await self._run_until_spooled(order, call)
        async with self.promise.attempt(wait_for_turn=call.is_job):
            reply = await self._run_until_spooled(order, call)
            ids = [picture.result_id for picture in reply.pictures if picture.result_id]
            reply.timings.add("save", await self.promise.stored(ids, call))
            return reply

    async def _run_until_spooled(self, order: Order, call: Call) -> Reply:
        reference = self.model_of(order)
        with ExitStack() as leased:
            model = await self._lease_model(leased, reference, order, call)
            headers = read_headers(order.files, self.settings.max_pixels)
            weight = estimate_cost(order.files, headers).with_results(order, headers, model.manifest)
            texture = self.texture if order.wants_texture else None
            trace = self.tracer.resume(call.traceparent) if self.tracer is not None and call.traceparent else None
            timings = Timings(on_ended=trace.stage_ended if trace is not None else None)
            async with self._hold_memory(weight, call, timings):
                with ExitStack() as spool:  # after the wait for memory: a waiting request holds no spool reservation
                    reserved = self._reserve_spool(spool, order, model.manifest)
                    seed = self._choose_seed(order, model.manifest)
                    request = spool.enter_context(RequestToCompute(order, headers, model, call, timings, weight, trace))
                    prepared = await self._prepare(request, seed or 0)
                    if (plan := prepared.texture) is not None:
                        spool.enter_context(self.long_work.count(call, plan.work, order.options.pictures))
                    computed = await self._compute_rows(prepared.rows, model, call, trace)
                    timings.add("queue", max(done.queue_s for done in computed))
                    timings.add("infer", max(done.infer_s for done in computed))
                    result = ComputedRequest(
                        order=order,
                        call=call,
                        model=model,
                        prepared=prepared,
                        seed=seed,
                        computed=computed,
                        timings=timings,
                        store=self.store,
                        reserved=reserved,
                        new_id=self.new_id,
                        trace=trace,
                        texture=texture,
                    )
                    reply = await self._encode_and_spool(result)
                    self._record_measurements(result, weight)
                    return reply

    def model_of(self, order: Order) -> str:
        """Return the model that an order names, or the default of its task, as `name` or `name/version`.

        Raises:
            InvalidOption: the order names no model and the task has no default.
        """
        if not (reference := order.options.model or self.settings.default_models[order.task]):
            missing = f"this server has no --{order.task}-model"
            raise InvalidOption(missing, code="model_required", advice="name a `model`", field="model")
        return reference

    async def _lease_model(self, leased: ExitStack, reference: str, order: Order, call: Call) -> BackendModel:
        """Lease the model of an order until `leased` ends, after checking that it can compute the order."""
        name, _, version = reference.partition("/")
        lease = self.models.lease(name, int(version) if version else None)
        try:  # an older version is loaded on its first lease, which blocks
            served = await enter_on_thread(leased, lease) if version else leased.enter_context(lease)
        except ModelNotFound as error:
            raise NotFound(without_folders(str(error)), code="model_not_found", field="model") from error
        except (ModelError, EngineError) as error:
            why = without_folders(str(error))
            raise NotReady(f"model {reference} cannot be loaded: {why}", code="model_refused", field="model") from error
        call.on_model(served.manifest.key)
        _check_model_suits_order(served.manifest, order, reference)
        if order.wants_texture and self.texture is None:
            missing = f"this server cannot copy texture: {HOW_TO_INSTALL}"
            raise InvalidOption(missing, code="texture_not_installed", field="texture")
        return served

    def _hold_memory(self, weight: DecodingCost, call: Call, timings: Timings) -> AbstractAsyncContextManager[None]:
        """Hold the memory of uploads and results. The wait is timed as a stage, even if it ends in an error.

        Raises:
            DeadlineExceeded, Overloaded: on entering, if the wait would last too long.
        """
        if weight.large and call.on_large is not None:
            call.on_large()
        allowed_s = call.deadline - call.received_at
        claim = Claim(weight.decoded_bytes, call.flow, weight.slow, call.deadline, allowed_s)
        on_waited = partial(self._record_memory_wait, timings)
        return self.memory.share(claim, deadline_from_client=call.deadline_from_client, on_waited=on_waited)

    def _record_memory_wait(self, timings: Timings, waited_s: float, granted: bool) -> None:
        timings.ended("memory", waited_s)
        if not granted:
            self.metrics.stages_done(timings.stages)  # for an answered request all stages are counted at its end

    def _reserve_spool(self, spool: ExitStack, order: Order, manifest: Manifest) -> list[SpoolReservation]:
        """Reserve bytes in the spool for each result until `spool` ends; empty if nothing is saved."""
        if not order.is_saved(self.settings.save):
            return []
        upload_bytes = len(order.files.get("image", b""))
        estimate = upload_bytes * _ENCODED_OVER_UPLOAD or smallest_tile_pixels(manifest) * manifest.output_channels
        return [spool.enter_context(self.store.reserve(estimate)) for _ in range(order.options.pictures)]

    def _choose_seed(self, order: Order, manifest: Manifest) -> int | None:
        """Return the seed of the latents; None for a model without latents."""
        if not manifest.has_latent:
            return None
        return self.new_seed() if order.options.seed is None else order.options.seed

    async def _prepare(self, request: RequestToCompute, seed: int) -> PreparedRequest:
        """Decode the files and make all rows; steps that need no computed tile run while the engine computes."""
        order, manifest, max_pixels = request.order, request.model.manifest, self.settings.max_pixels
        drawn = [order.seed_and_sample(seed, index) for index in range(order.options.pictures)]

        def prepare(run_steps: StepRunner) -> PreparedRequest:
            one = PREPARE[order.task](order, request.headers, max_pixels, manifest, request.timings, run_steps)
            return replace(one, rows=rows_of_results(one.rows, manifest, drawn, self.draw))

        work, large = request.work_ahead, request.weight.large
        prepared = await self.codec_work.run_decoding(prepare, request.effort, work, large=large)
        request.call.raise_if_disconnected()
        return prepared

    async def _compute_rows(
        self, rows: list[Sample], model: BackendModel, call: Call, trace: StageTrace | None
    ) -> list[ComputedSample]:
        if len(rows) == 1:
            return [await self._compute_row(rows[0], model, call, trace)]
        waiting = [asyncio.ensure_future(self._compute_row(row, model, call, trace)) for row in rows]
        try:
            return list(await asyncio.gather(*waiting))
        finally:  # one row failed or the client disconnected: the others are withdrawn from the queue
            while waiting:  # popped, because a row's error refers to this frame: the cycle would keep its pictures
                waiting.pop().cancel()

    async def _compute_row(
        self, row: Sample, model: BackendModel, call: Call, trace: StageTrace | None
    ) -> ComputedSample:
        traced = trace is not None
        done = await self.batcher.submit(row, model, call.deadline, call.on_begun, call.flow, traced=traced)
        if trace is not None:
            trace.sample_computed(done)
        return done

    async def _encode_and_spool(self, result: ComputedRequest) -> Reply:
        """Encode and spool. A call that is cancelled while its results are being stored continues to its end.

        Otherwise nobody would be given them, and repeats would store them again. A call without repeats waits briefly,
        as the disk may hang; a job, which discards its results, not at all.
        """
        try:
            return await self._finish(result)
        except BaseException as error:
            if result.stored.cancel() or result.call.is_job or not isinstance(error, asyncio.CancelledError):
                raise
            limit_s = None if result.call.has_repeats else _STORE_S
            with suppress(asyncio.TimeoutError):
                if (reply := await asyncio.wait_for(asyncio.wrap_future(result.stored), limit_s)) is not None:
                    return reply
            raise

    async def _finish(self, result: ComputedRequest) -> Reply:
        """Encode and spool: all steps of a single picture on one thread, several pictures in parallel.

        A single picture stays on one thread because each thread hand-over costs as much as the write to the spool.
        """
        slow = result.texture is not None
        if slow:
            result.call.raise_if_disconnected()
            if result.call.on_large is not None:
                result.call.on_large(computed=True)
        finish, file_format = partial(self.codec_work.run_encoding, slow=slow), result.order.format
        pixels, writes = result.prepared.size.height * result.prepared.size.width, bool(result.reserved)
        if (count := result.order.options.pictures) == 1:
            return await finish(result.encode_and_spool, pixels, file_format, writes=writes)
        own = [Timings(on_ended=result.timings.on_ended) for _ in range(count)]
        finished = await asyncio.gather(
            *(
                finish(partial(result.encode, index, its), pixels, file_format, writes=False)
                for index, its in enumerate(own)
            )
        )
        for stage in own[0].stages:  # the slowest picture's time is reported
            result.timings.add(stage, max(its.stages[stage] for its in own))
        return await finish(lambda _: result.spool(finished), pixels, file_format, writes=writes)

    def _record_measurements(self, result: ComputedRequest, weight: DecodingCost) -> None:
        computed, timings = result.computed, result.timings
        if (plan := result.prepared.texture) is not None:
            self.long_work.learn(plan.work, timings.stages["texture"])
        waited_s = timings.stages["queue"] + timings.stages.get("memory", 0.0)
        unloaded_s = None if weight.slow else sum(timings.stages.values()) - waited_s
        self.admission.service_rate.add_measurement(((done.batch_size, done.device_s) for done in computed), unloaded_s)
        self.metrics.stages_done(timings.stages)


def _check_model_suits_order(manifest: Manifest, order: Order, reference: str) -> None:
    """Raise InvalidOption if the model cannot compute the order; the message says why."""
    if manifest.task != order.task:
        wrong = f"model {reference} is for {manifest.task}, not {order.task}; name another, or {manifest.task} with it"
        raise InvalidOption(wrong, code="wrong_task", field="model")
    if reason := why_not_servable(manifest):
        raise InvalidOption(reason, code="not_a_picture", field="model")
    if order.options.pictures > 1 and not is_diverse(manifest):
        same = f"{manifest.key} draws no random numbers: all samples would be the same; ask for one"
        raise InvalidOption(same, code="not_diverse", field="count" if order.task == "generate" else "samples")
