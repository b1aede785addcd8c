"""ModelInfer: admitted before its message is read, then handled as any request for pictures."""

from __future__ import annotations

from functools import partial

from service.grpc.call import Answer, RemoteCall
from service.grpc.metadata import allowed_s
from service.grpc.requests import parse_named_request, response_of
from service.intake.intake import Arrival, Intake, admitted
from service.intake.large_bodies import off_loop
from service.intake.options import ignored_header
from service.intake.reply_facts import reply_facts
from service.intake.request_metadata import parse_priority, parse_timeout_s, single_value
from service.open_inference.orders import InferOrder, compute_reply, order_of, output_of, write_reply
from service.repeats.response_files import StoredResponse


async def infer(call: RemoteCall) -> Answer:
    """Compute pictures: from `image` and `mask`, from other inputs of the model, or from none."""
    with admitted(call.service, _arrival(call), Intake) as intake:
        asked = await intake.receive_body(_read(call, intake))
        intake.take_timeout_and_priority(asked.request.timeout_s, asked.request.priority)
        key = single_value(call.lines, "idempotency-key")
        work = partial(_respond, intake, asked)
        if key is not None:
            work = partial(intake.run_idempotent, key, asked.order, asked.varies_with("open-inference-grpc"), work)
        kept = await intake.run_until_deadline(work)
        return Answer(kept.body, dict(kept.headers))


def _arrival(call: RemoteCall) -> Arrival:
    header_s = parse_timeout_s(single_value(call.lines, "x-request-timeout-ms"))
    return Arrival(
        call.request_id,
        call.client.id,
        allowed_s(call.context.time_remaining(), header_s),
        parse_priority(single_value(call.lines, "x-priority")),
        call.traceparent,
        on_model=partial(setattr, call, "model"),
    )


async def _read(call: RemoteCall, intake: Intake) -> InferOrder:
    message = await call.read()
    intake.count_bytes(2 * len(message))  # the message and a copy of its pictures
    reading = partial(parse_named_request, message, intake.service.settings.max_pixels)
    named = await off_loop(len(message), reading)
    del message, reading
    return await order_of(intake, named.request, named.model, named.version)


async def _respond(intake: Intake, asked: InferOrder) -> StoredResponse:
    reply, pixels = await compute_reply(intake, asked)

    def make() -> bytes:
        output = output_of(reply, asked.request, intake.service.settings.max_pixels)
        return response_of(reply, asked.request, output)

    message = await write_reply(intake, reply, pixels, make)
    facts = {**reply_facts(reply), **ignored_header(set(asked.ignored))}
    return StoredResponse(200, tuple((name.lower(), value) for name, value in facts.items()), message)
