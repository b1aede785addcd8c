"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import httpx

from retouch.client.address import id_at_end
from retouch.client.calls import Call, read_call
from retouch.client.connection import DEFAULT_URL, Connection, closed_error, exchanges_with, lost, new_key
from retouch.client.exchanges import Answer, Exchange, Exchanges, Pause
from retouch.client.options import GenerateOptions, InpaintOptions, ResultFilter, Task, TranslateOptions
from retouch.client.results import JobState, Model, Picture, Result, StoredResult
from retouch.client.retrying import RetryPolicy
from retouch.client.sources import Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class ExchangeRunner:
    """Carries out exchanges: sends their calls and sleeps their pauses."""

    def __init__(self, http: httpx.Client, connection: Connection) -> None:
        self._http = http
        self._connection = connection

    def run(self, exchange: Exchange[T]) -> T:
        """Return what the exchange returns, or raise what it raises."""
        answer: Answer = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, call: Call) -> Answer:
        try:
            return self._http.request(**self._connection.request(call))
        except httpx.RequestError as error:
            return lost(error)
        except RuntimeError as error:
            if self._http.is_closed:
                raise closed_error() from error
            raise


class Retouch:
    """A client of one server. Several threads may use it at once.

    Args:
        url: address of the server.
        api_key: API key; None for the one in RETOUCH_API_KEY or in the file RETOUCH_API_KEY_FILE, "" for no key.
        retry: when to send a request again; a number is the number of retries.
        timeout_s: longest wait for a reply, in seconds; for a connection at most 5.
        http_client: the httpx client to send with, for proxies or certificates; it is not closed here.

    Raises:
        AddressInvalid, KeyFileUnreadable, KeyUnusable: the address or the key cannot be used.
        ValueError: `timeout_s` is not above 0, or `retry` is neither a number of at least 0 nor a policy.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        retry: RetryPolicy | int = 2,
        timeout_s: float = 600.0,
        http_client: httpx.Client | None = None,
    ) -> None:
        connection = Connection.to(url, api_key, timeout_s)
        self._exchanges = exchanges_with(connection, retry)
        self._http = http_client or httpx.Client()
        self._owned = http_client is None
        self._runner = ExchangeRunner(self._http, connection)

    def inpaint(self, image: Source, mask: Source, **options: Unpack[InpaintOptions]) -> Result:
        """Fill the masked part of an image.

        Args:
            image: JPEG, PNG or WebP: a path, bytes, an open file, a PIL image or an array (H×W×3, uint8).
            mask: a picture of the same size; its pixels of 128 and above are filled, unless `mask_mode` says otherwise.
            options: see `InpaintOptions`.

        Raises:
            ClientError: see `retouch.client.errors`.
        """
        return self._pictures("inpaint", {"image": image, "mask": mask}, options)

    def translate(self, image: Source, **options: Unpack[TranslateOptions]) -> Result:
        """Translate an image, or a label map, into the model's other domain; arguments and errors as for `inpaint`."""
        return self._pictures("translate", {"image": image}, options)

    def generate(self, **options: Unpack[GenerateOptions]) -> Result:
        """Make pictures from random numbers alone; options and errors as for `inpaint`."""
        return self._pictures("generate", {}, options)

    @overload
    def submit(
        self, task: Literal["inpaint"], image: Source, mask: Source, **options: Unpack[InpaintOptions]
    ) -> Job: ...
    @overload
    def submit(self, task: Literal["translate"], image: Source, **options: Unpack[TranslateOptions]) -> Job: ...
    @overload
    def submit(self, task: Literal["generate"], **options: Unpack[GenerateOptions]) -> Job: ...
    def submit(self, task: Task, image: Source | None = None, mask: Source | None = None, **options: Any) -> Job:
        """Submit a call to the server as a job, and return at once; arguments and errors as for `inpaint`."""
        pictures = {name: source for name, source in (("image", image), ("mask", mask)) if source is not None}
        return Job(
            self._runner,
            self._exchanges,
            self._runner.run(self._exchanges.job(read_call(task, pictures, options, new_key, job=True))).id,
        )

    def job(self, job_id: str) -> Job:
        """Return a job by its id or its path; nothing is sent.

        Raises:
            AddressInvalid: `job_id` is neither an id nor a path that ends in one.
        """
        return Job(self._runner, self._exchanges, id_at_end(job_id))

    def result(self, result_id: str) -> Result:
        """Return a stored result by its id or its path (`url` of a picture); errors as for `inpaint`."""
        return self._runner.run(self._exchanges.stored(id_at_end(result_id)))

    def results(self, **filters: Unpack[ResultFilter]) -> Iterator[StoredResult]:
        """Yield the stored results of this key, newest first; each page is requested when it is needed.

        Args:
            filters: see `ResultFilter`.

        Raises:
            ClientError: as for `inpaint`, while iterating. Forbidden: the key lacks the scope `results:read`. NotFound:
                the server is public and has no keys, so that results have no owners.
        """
        cursor = None
        while True:
            page = self._runner.run(self._exchanges.page(filters, cursor))
            yield from page.results
            if (cursor := page.next_cursor) is None:
                return

    def thumbnail(self, result_id: str) -> Picture:
        """Return a stored result as WebP of at most 320 pixels a side, by its id or path; errors as for `results`."""
        return self._runner.run(self._exchanges.thumbnail(id_at_end(result_id)))

    def delete_result(self, result_id: str) -> None:
        """Delete a stored result: it can no longer be fetched. Copies that the server cannot reach are deleted later.

        Args:
            result_id: id or path of a result of this key.

        Raises:
            NotFound: this key has no such result.
            Gone: it was already deleted.
            Forbidden: the key lacks the scope `results:delete`.
        """
        self._runner.run(self._exchanges.deletion(id_at_end(result_id)))

    def models(self) -> tuple[Model, ...]:
        """Return the model versions of the server; errors as for `inpaint`."""
        return self._runner.run(self._exchanges.models())

    def close(self) -> None:
        """Close the connections."""
        if self._owned:
            self._http.close()

    def __enter__(self) -> Retouch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pictures(self, task: Task, pictures: Mapping[str, Source], options: Mapping[str, Any]) -> Result:
        return self._runner.run(self._exchanges.result(read_call(task, pictures, options, new_key, job=False)))


class Job:
    """A job on the server: a call that it computes after the reply. `Retouch.submit` makes one."""

    def __init__(self, runner: ExchangeRunner, exchanges: Exchanges, job_id: str) -> None:
        self._runner = runner
        self._exchanges = exchanges
        self.id = job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def status(self) -> JobState:
        """Return the job's state.

        Raises:
            NotFound: the server does not know the job; it forgets a job an hour after its end.
        """
        return self._state("GET")

    def wait(self, timeout_s: float | None = None) -> Result:
        """Wait until the job ends and return its result, with one picture for each sample.

        A job outlives a restart of the server, so this goes on while no server answers, whatever `retry` says.

        Args:
            timeout_s: seconds to wait; None for as long as it takes.

        Raises:
            JobFailed, JobCancelled: the job ended without a result.
            JobUnfinished: the job has not ended, or its result was not fetched, in time; call `wait` again.
            NoReply, Refused: without `timeout_s`, no server answered for five minutes.
        """
        return self._runner.run(self._exchanges.job_result(self.id, timeout_s))

    def cancel(self) -> JobState:
        """Cancel the job and return its state; a job that has ended is unchanged."""
        return self._state("DELETE")

    def _state(self, method: Literal["GET", "DELETE"]) -> JobState:
        return self._runner.run(self._exchanges.job(Call(method, f"/v1/jobs/{self.id}")))
