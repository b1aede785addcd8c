"""The exchanges, driven by hand without socket and clock: what the clients send, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from retouch.client.calls import Call
from retouch.client.errors import DeadlineExceeded, Gone, JobUnfinished, NoReply, NotFound, Refused
from retouch.client.exchanges import Answer, Exchange, Exchanges, LostReply, Pause
from retouch.client.retrying import RetryPolicy

JOB, RESULT = "1" * 32, "2" * 32


def exchanges(now: Callable[[], float] = lambda: 0.0) -> Exchanges:
    return Exchanges("http://server", RetryPolicy(), lambda: 0.5, now)


def driven(exchange: Exchange[Any], *answers: Answer) -> tuple[Any, list[Call | Pause]]:
    """Run an exchange, whose calls get the answers in turn; returns its result and all its steps."""
    steps: list[Call | Pause] = []
    left = [*answers]
    answer: Answer = None
    while True:
        try:
            steps.append(exchange.send(answer))
        except StopIteration as done:
            return done.value, steps
        answer = None if isinstance(steps[-1], Pause) else left.pop(0)


def json(document: object, status: int = 200, **headers: str) -> httpx.Response:
    request = httpx.Request("GET", "http://server")
    return httpx.Response(status, json=document, headers=headers, request=request)


def job(status: str, **fields: object) -> httpx.Response:
    base: dict[str, object] = {
        "id": JOB,
        "status": status,
        "created": "now",
        "result_urls": [],
        "problem": None,
        "webhook": None,
    }
    return json({**base, **fields})


def lost(*, timed_out: bool = False) -> LostReply:
    return LostReply(httpx.ReadError("cut"), timed_out)


SIDECAR = {
    "id": RESULT,
    "model": "photos/1",
    "engine": "fake/fp32",
    "mask_coverage": 0.5,
    "batch_size": 2,
    "timings_ms": {"infer": 3.5},
    "request_id": "r1",
}


def test_pauses_come_from_refusals_and_from_silence() -> None:
    busy = json({"code": "overloaded", "detail": "full", "retryable": True}, 503, **{"Retry-After": "7"})
    call = Call("POST", "/v1/translate")
    reply, steps = driven(exchanges().reply_to(call), busy, lost(), json("done"))
    assert reply.json() == "done"
    assert [step for step in steps if isinstance(step, Pause)] == [Pause(7.0), Pause(1.0)]


def test_a_deadline_of_the_callers_own_that_passed_is_final() -> None:
    late = json({"code": "deadline_exceeded", "detail": "late", "retryable": True}, 504, **{"Retry-After": "1"})
    with pytest.raises(DeadlineExceeded):
        driven(exchanges().reply_to(Call("POST", "/v1/inpaint", {"X-Request-Timeout-Ms": "10"})), late)
    reply, _ = driven(exchanges().reply_to(Call("POST", "/v1/inpaint")), late, json("done"))
    assert reply.json() == "done"


def test_a_reply_that_did_not_come_in_time_is_final_and_a_connection_that_was_cut_is_not() -> None:
    call = Call("POST", "/v1/inpaint")
    with pytest.raises(NoReply, match=r"^http://server did not answer in time"):
        driven(exchanges().reply_to(call), lost(timed_out=True))
    reply, _ = driven(exchanges().reply_to(call), lost(), json("done"))
    assert reply.json() == "done"


def test_a_job_is_polled_less_and_less_often_until_it_ends_and_its_results_are_fetched() -> None:
    ended = job("succeeded", result_urls=[f"/v1/results/{RESULT}", f"/v1/results/{'3' * 32}"])
    image = httpx.Response(200, content=b"picture", headers={"Content-Type": "image/png"})
    result, steps = driven(
        exchanges().job_result(JOB, None),
        *(job("queued"), *6 * [job("running")], ended, image, json(SIDECAR), image, json({**SIDECAR, "id": "3" * 32})),
    )
    assert [picture.url for picture in result.pictures] == [f"/v1/results/{RESULT}", f"/v1/results/{'3' * 32}"]
    assert (result.model, result.timings_ms, result.mask_coverage, result.seed) == (
        "photos/1",
        {"infer": 3.5},
        0.5,
        None,
    )
    pauses = [step.seconds for step in steps if isinstance(step, Pause)]
    assert pauses == pytest.approx([0.1 * 1.5**poll for poll in range(7)])
    paths = [step.path for step in steps if isinstance(step, Call)]
    assert paths[-4:] == 2 * [f"/v1/results/{RESULT}"] + 2 * [f"/v1/results/{'3' * 32}"]


def test_a_result_is_fetched_from_the_server_alone_whatever_address_a_job_names() -> None:
    ended = job("succeeded", result_urls=[f"http://elsewhere/v1/results/{RESULT}"])
    image = httpx.Response(200, content=b"picture", headers={"Content-Type": "image/png"})
    _, steps = driven(exchanges().job_result(JOB, None), ended, image, json(SIDECAR))
    assert {step.path for step in steps if isinstance(step, Call)} == {f"/v1/jobs/{JOB}", f"/v1/results/{RESULT}"}


class Watch:
    """A clock that only pauses and answers advance."""

    def __init__(self) -> None:
        self.s = 0.0

    def wait_for_job(self, timeout_s: float | None, *answers: tuple[float, Answer]) -> Any:
        """Wait for a job; each answer comes with its duration in seconds. IndexError if there are too few."""
        exchange = exchanges(lambda: self.s).job_result(JOB, timeout_s)
        left = [*answers]
        answer: Answer = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as done:
                return done.value
            took_s, answer = (step.seconds, None) if isinstance(step, Pause) else left.pop(0)
            self.s += took_s


def test_a_wait_ends_in_time_and_polls_once_more_at_its_end() -> None:
    watch = Watch()
    with pytest.raises(JobUnfinished, match=r"still running after 0\.15 s") as unfinished:
        watch.wait_for_job(0.15, (0.0, job("running")), (0.0, job("running")), (0.0, job("running")))
    assert (unfinished.value.job_id, unfinished.value.retryable) == (JOB, True)
    assert watch.s == pytest.approx(0.15)


def test_a_wait_does_not_outlast_its_time_because_the_server_is_busy() -> None:
    """Polls count against the key's rate, so a `Retry-After` may be longer than the caller waits."""
    watch = Watch()
    busy = json({"code": "rate_limited", "detail": "over the rate", "retryable": True}, 429, **{"Retry-After": "60"})
    with pytest.raises(JobUnfinished, match=r"was queued, and is not known to have ended after 5\.0 s: 429") as late:
        watch.wait_for_job(5.0, (0.0, job("queued")), (0.0, busy))
    assert watch.s == pytest.approx(5.0)  # not at once, or a caller that waits in a loop would spin
    assert isinstance(late.value.__cause__, Refused)


@pytest.mark.parametrize("fetched", [0, 1])
def test_a_wait_does_not_outlast_its_time_because_the_result_of_a_job_that_succeeded_does_not_come(
    fetched: int,
) -> None:
    watch = Watch()
    busy = json({"code": "rate_limited", "detail": "over the rate", "retryable": True}, 429, **{"Retry-After": "3"})
    ended = job("succeeded", result_urls=[f"/v1/results/{RESULT}"])
    image = httpx.Response(200, content=b"picture", headers={"Content-Type": "image/png"})
    answers = [(0.0, ended), *fetched * [(0.5, image)], (0.5, busy), (0.5, busy)]
    with pytest.raises(JobUnfinished, match=r"has succeeded, .* not fetched in 5\.0 s: 429.*wait again") as late:
        watch.wait_for_job(5.0, *answers)
    assert watch.s == pytest.approx(5.0)
    assert (late.value.job_id, late.value.retryable) == (JOB, True)
    assert isinstance(late.value.__cause__, Refused)


def test_a_wait_does_not_outlast_its_time_because_a_poll_hangs() -> None:
    exchange = exchanges().job_result(JOB, 2.0)
    poll = exchange.send(None)
    assert isinstance(poll, Call)
    assert poll.within_s == pytest.approx(7.0)  # connecting may take 5 s
    with pytest.raises(JobUnfinished, match=r"is not known to have ended after 2\.0 s") as late:
        Watch().wait_for_job(2.0, (7.0, lost(timed_out=True)))
    assert isinstance(late.value.__cause__, NoReply)


def fetched() -> list[tuple[float, Answer]]:
    """Return the answers for a job that has succeeded and for its only result."""
    image = httpx.Response(200, content=b"picture", headers={"Content-Type": "image/png"})
    ended = job("succeeded", result_urls=[f"/v1/results/{RESULT}"])
    return [(0.0, ended), (0.0, image), (0.0, json(SIDECAR))]


@pytest.mark.parametrize("timeout_s", [60.0, None])
def test_a_wait_outlives_a_restart_of_the_server(timeout_s: float | None) -> None:
    watch = Watch()
    away = 6 * [(0.0, lost())] + [(1.0, lost(timed_out=True)), (0.0, json("a proxy's words", 502))]
    loading = json({"code": "not_ready", "detail": "loading", "retryable": True}, 503, **{"Retry-After": "3"})
    result = watch.wait_for_job(timeout_s, (0.0, job("queued")), *away, (0.0, loading), *fetched())
    assert result.url == f"/v1/results/{RESULT}"
    assert 20 < watch.s < 50  # with short pauses


def test_the_result_of_a_job_is_fetched_although_the_server_restarts() -> None:
    ended, *result = fetched()
    assert Watch().wait_for_job(60.0, ended, *6 * [(0.0, lost())], *result).url == f"/v1/results/{RESULT}"


def test_a_wait_for_an_unreachable_server_ends_in_time() -> None:
    watch = Watch()
    with pytest.raises(JobUnfinished, match=r"not known to have ended after 60\.0 s: .*cannot be reached") as late:
        watch.wait_for_job(60.0, *100 * [(0.0, lost())])
    assert isinstance(late.value.__cause__, NoReply)
    assert watch.s == pytest.approx(60.0)


@pytest.mark.parametrize("before", [[], fetched()[:1]])
def test_a_wait_without_a_timeout_gives_up_on_an_unreachable_server(before: list[tuple[float, Answer]]) -> None:
    watch = Watch()
    with pytest.raises(NoReply, match="cannot be reached"):
        watch.wait_for_job(None, *before, *100 * [(0.0, lost())])
    assert watch.s == pytest.approx(300.0)


def test_a_server_that_says_for_good_that_it_cannot_is_not_polled_again() -> None:
    with pytest.raises(Refused, match="503 broken"):
        Watch().wait_for_job(60.0, (0.0, json({"code": "broken", "detail": "so", "retryable": False}, 503)))


def test_a_wait_says_at_once_that_there_is_no_such_job() -> None:
    unknown = json({"code": "not_found", "detail": "no job", "retryable": False}, 404)
    with pytest.raises(NotFound):
        driven(exchanges().job_result(JOB, 0.0), unknown)


def gone() -> httpx.Response:
    return json({"code": "result_deleted", "detail": "it was deleted", "retryable": False}, 410)


def test_an_error_of_the_network_without_a_text_has_a_name() -> None:
    with pytest.raises(NoReply, match=r"cannot be reached \(ConnectTimeout\)"):
        driven(exchanges().models(), *[LostReply(httpx.ConnectTimeout(""), timed_out=False)] * 3)


def test_a_deletion_whose_reply_was_lost_has_done_its_work() -> None:
    result, steps = driven(exchanges().deletion(RESULT), lost(), gone())
    assert result is None
    assert [step for step in steps if isinstance(step, Call)] == [Call("DELETE", f"/v1/results/{RESULT}")] * 2
    with pytest.raises(Gone):
        driven(exchanges().deletion(RESULT), gone())


def test_each_page_is_asked_for_with_the_filter_and_the_cursor_of_the_one_before() -> None:
    page, (call,) = driven(
        exchanges().page({"model": "a/1", "limit": 2}, "c="), json({"results": [], "next_cursor": None})
    )
    assert page.results == ()
    assert call == Call("GET", "/v1/results?model=a%2F1&limit=2&cursor=c%3D")
