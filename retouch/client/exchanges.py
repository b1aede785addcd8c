"""Exchanges with the server: what to send next, how long to pause, what to return or raise.

An exchange is a generator. It yields a `Call` to be sent or a `Pause` to be slept, is sent the reply (or `LostReply`),
and returns its result. It does no I/O itself, so the two clients differ only in how they send and sleep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx

from retouch.client.address import id_at_end
from retouch.client.calls import Call, list_call
from retouch.client.errors import JobUnfinished, NoReply
from retouch.client.replies import (
    job_error,
    joined,
    read_job,
    read_models,
    read_page,
    read_result,
    read_stored,
    read_thumbnail,
    refusal,
)
from retouch.client.results import JobState, Model, Picture, Result, ResultPage
from retouch.client.retrying import RetryPolicy, pause_of_a_restart

T = TypeVar("T")
_FIRST_POLL_S, _MAX_POLL_S = 0.1, 2.0
_LAST_REPLY_S = 5.0
"""Seconds by which a reply may exceed the caller's wait, so that the last poll has a chance."""
_MAX_RESTART_S = 300.0
"""Seconds that a caller without a time limit waits for a server that does not reply."""


class OutOfTime(Exception):
    """The caller's waiting time ends before a failed request could be sent again."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause before the next step, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LostReply:
    """No reply came: the connection was refused, cut off or timed out.

    timed_out: the caller's time for a reply is used up, so none is left for another try.
    """

    error: httpx.RequestError
    timed_out: bool


Answer = httpx.Response | LostReply | None
Exchange = Generator[Call | Pause, Answer, T]


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The exchanges of a client with its server.

    url: the server's address, for messages.
    draw: returns a random number in [0, 1).
    now: returns the time in seconds, from any start.
    """

    url: str
    retry: RetryPolicy
    draw: Callable[[], float]
    now: Callable[[], float]

    def reply_to(
        self, call: Call, *, done_before: int | None = None, until: float | None = None
    ) -> Exchange[httpx.Response]:
        """Return the successful reply to a request; failed tries are repeated as the policy says.

        Args:
            call: the request.
            done_before: a status that counts as success from the second try on.
            until: the time until which the request is repeated whenever no reply comes or the server restarts; None to
                repeat only as the policy says, infinity for up to five minutes.

        Raises:
            OutOfTime: a finite `until` has come; its cause is the error of the last try.
            NoReply: no reply came, and there is no further try.
            Refused: the server answered with a problem, and there is no further try.
        """
        unlimited = until == math.inf
        if unlimited:
            until = self.now() + _MAX_RESTART_S
        tries = 0
        while True:
            tries += 1
            answer = yield call if until is None else replace(call, within_s=self._left_s(until) + _LAST_REPLY_S)
            if isinstance(answer, httpx.Response):
                if answer.is_success or (tries > 1 and answer.status_code == done_before):
                    return answer
                call = call.returning(answer.headers.get("X-Request-ID", ""))
            pause_s = self._pause_s(call, answer, tries, restarts=until is not None)
            late = until is not None and pause_s is not None and self.now() + pause_s >= until
            if until is not None and late:  # a caller that waits again and again would otherwise never pause
                yield Pause(self._left_s(until))
            if late and not unlimited:
                raise OutOfTime from self._error(answer, tries)
            if late or pause_s is None:
                raise self._error(answer, tries) from (answer.error if isinstance(answer, LostReply) else None)
            yield Pause(pause_s)

    def result(self, call: Call) -> Exchange[Result]:
        """Return the pictures of a call; raises ReplyInvalid, and as `reply_to`."""
        return read_result((yield from self.reply_to(call)))

    def job(self, call: Call) -> Exchange[JobState]:
        """Return the state of a job, after the call that made it or cancels it, or to poll it; raises as `result`."""
        return read_job((yield from self.reply_to(call)))

    def job_result(self, job_id: str, timeout_s: float | None) -> Exchange[Result]:
        """Poll a job until it ends, and return its result.

        A job outlives a restart of the server, so polling goes on when no server answers.

        Args:
            job_id: id of the job.
            timeout_s: seconds to wait; None for as long as it takes.

        Raises:
            JobFailed, JobCancelled: it ended without a result.
            JobUnfinished: it has not ended in time, or its result was not fetched in time.
            NoReply, Refused: without `timeout_s`, no server answered for five minutes.
            Refused, ReplyInvalid: it cannot be polled, or its result cannot be read.
        """
        end = math.inf if timeout_s is None else self.now() + timeout_s
        pause_s, was = _FIRST_POLL_S, ""
        while True:
            try:
                state = read_job((yield from self.reply_to(Call("GET", f"/v1/jobs/{job_id}"), until=end)))
            except OutOfTime as late:
                why = f"job {job_id} {was}is not known to have ended after {timeout_s} s: {late.__cause__}"
                raise JobUnfinished(why, job_id) from late.__cause__
            if state.ended:
                break
            was = f"was {state.status}, and "
            if (left_s := end - self.now()) <= 0:
                raise JobUnfinished(f"job {job_id} is still {state.status} after {timeout_s} s", job_id)
            yield Pause(min(pause_s, left_s))
            pause_s = min(1.5 * pause_s, _MAX_POLL_S)
        if state.status != "succeeded" or not state.result_urls:
            raise job_error(state)
        results = []
        try:
            for url in state.result_urls:
                results.append((yield from self.stored(id_at_end(url), until=end)))  # noqa: PERF401 -- a comprehension cannot yield
        except OutOfTime as late:
            why = f"job {job_id} has succeeded, but its result was not fetched in {timeout_s} s: {late.__cause__}"
            raise JobUnfinished(f"{why}; wait again", job_id) from late.__cause__
        return joined(results)

    def stored(self, result_id: str, *, until: float | None = None) -> Exchange[Result]:
        """Return a stored result, from its image and its sidecar; `until` as for `reply_to`, raises as `result`."""
        path = f"/v1/results/{result_id}"
        image = yield from self.reply_to(Call("GET", path), until=until)
        sidecar = yield from self.reply_to(Call("GET", path, {"Accept": "application/json"}), until=until)
        return read_stored(image, sidecar)

    def page(self, options: Mapping[str, Any], cursor: str | None) -> Exchange[ResultPage]:
        """Return a page of the stored results; arguments as for `list_call`, raises as `result`."""
        return read_page((yield from self.reply_to(list_call(options, cursor))))

    def thumbnail(self, result_id: str) -> Exchange[Picture]:
        """Return a stored result as a small picture; raises as `result`."""
        return read_thumbnail((yield from self.reply_to(Call("GET", f"/v1/results/{result_id}/thumbnail"))))

    def deletion(self, result_id: str) -> Exchange[None]:
        """Delete a stored result; raises as `reply_to`.

        From the second try on, the answer that it is gone is no error: an earlier try has deleted it.
        """
        yield from self.reply_to(Call("DELETE", f"/v1/results/{result_id}"), done_before=httpx.codes.GONE)

    def models(self) -> Exchange[tuple[Model, ...]]:
        """Return the model versions of the server; raises as `result`."""
        return read_models((yield from self.reply_to(Call("GET", "/v1/models"))))

    def _left_s(self, until: float) -> float:
        return max(0.0, until - self.now())

    def _pause_s(self, call: Call, answer: Answer, tries: int, *, restarts: bool) -> float | None:
        if restarts:
            response = answer if isinstance(answer, httpx.Response) else None
            if (pause_s := pause_of_a_restart(response, tries, self.draw())) is not None:
                return pause_s
        if isinstance(answer, httpx.Response):
            over = answer.status_code == httpx.codes.GATEWAY_TIMEOUT and call.has_deadline
            return None if over else self.retry.pause_after_refusal(answer, tries, self.draw())
        if isinstance(answer, LostReply) and (answer.timed_out or not call.repeatable):
            return None
        return self.retry.pause_after_silence(tries, self.draw())

    def _error(self, answer: Answer, tries: int) -> Exception:
        if isinstance(answer, httpx.Response):
            return refusal(answer, tries)
        if isinstance(answer, LostReply) and answer.timed_out:
            return NoReply(f"{self.url} did not answer in time; raise the timeout (timeout_s, --timeout)")
        cause = answer.error if isinstance(answer, LostReply) else None
        why = str(cause) or type(cause).__name__  # many errors of httpx have no text
        return NoReply(f"{self.url} cannot be reached ({why}); is `retouch serve` running there?")
