"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
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


class AsyncExchangeRunner:
    """Carries out exchanges: sends their calls and sleeps their pauses."""

    def __init__(self, http: httpx.AsyncClient, connection: Connection) -> None:
        self._http = http
        self._connection = connection

    async def run(self, exchange: Exchange[T]) -> T:
        """Return what the exchange returns, or raise what it raises."""
        answer: Answer = None
        while True:
            try:
                step = exchange.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, call: Call) -> Answer:
        try:
            return await self._http.request(**self._connection.request(call))
        except httpx.RequestError as error:
            return lost(error)
        except RuntimeError as error:
            if self._http.is_closed:
                raise closed_error() from error
            raise


class AsyncRetouch:
    """A client of one server, on one event loop; several tasks may use it at once. `Retouch` with `await`.

    A cancelled call closes its connection, and the server does not compute it unless it has begun.

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
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        connection = Connection.to(url, api_key, timeout_s)
        self._exchanges = exchanges_with(connection, retry)
        self._http = http_client or httpx.AsyncClient()
        self._owned = http_client is None
        self._runner = AsyncExchangeRunner(self._http, connection)

    async def inpaint(self, image: Source, mask: Source, **options: Unpack[InpaintOptions]) -> Result:
        """Fill the masked part of an image.

        Args:
            image: JPEG, PNG or WebP: a path, bytes, an open file, a PIL image or an array (H×W×3, uint8).
            mask: a picture of the same size; its pixels of 128 and above are filled, unless `mask_mode` says otherwise.
            options: see `InpaintOptions`.

        Raises:
            ClientError: see `retouch.client.errors`.
        """
        return await self._pictures("inpaint", {"image": image, "mask": mask}, options)

    async def translate(self, image: Source, **options: Unpack[TranslateOptions]) -> Result:
        """Translate an image, or a label map, into the model's other domain; arguments and errors as for `inpaint`."""
        return await self._pictures("translate", {"image": image}, options)

    async def generate(self, **options: Unpack[GenerateOptions]) -> Result:
        """Make pictures from random numbers alone; options and errors as for `inpaint`."""
        return await self._pictures("generate", {}, options)

    @overload
    async def submit(
        self, task: Literal["inpaint"], image: Source, mask: Source, **options: Unpack[InpaintOptions]
    ) -> AsyncJob: ...
    @overload
    async def submit(
        self, task: Literal["translate"], image: Source, **options: Unpack[TranslateOptions]
    ) -> AsyncJob: ...
    @overload
    async def submit(self, task: Literal["generate"], **options: Unpack[GenerateOptions]) -> AsyncJob: ...
    async def submit(
        self, task: Task, image: Source | None = None, mask: Source | None = None, **options: Any
    ) -> AsyncJob:
        """Submit a call to the server as a job, and return at once; arguments and errors as for `inpaint`."""
        pictures = {name: source for name, source in (("image", image), ("mask", mask)) if source is not None}
        call = await asyncio.to_thread(read_call, task, pictures, options, new_key, job=True)
        return AsyncJob(self._runner, self._exchanges, (await self._runner.run(self._exchanges.job(call))).id)

    def job(self, job_id: str) -> AsyncJob:
        """Return a job by its id or its path; nothing is sent.

        Raises:
            AddressInvalid: `job_id` is neither an id nor a path that ends in one.
        """
        return AsyncJob(self._runner, self._exchanges, id_at_end(job_id))

    async def result(self, result_id: str) -> Result:
        """Return a stored result by its id or its path (`url` of a picture); errors as for `inpaint`."""
        return await self._runner.run(self._exchanges.stored(id_at_end(result_id)))

    async def results(self, **filters: Unpack[ResultFilter]) -> AsyncIterator[StoredResult]:
        """Yield the stored results of this key, newest first; each page is requested when it is needed.

        Args:
            filters: see `ResultFilter`.

        Raises:
            ClientError: as for `inpaint`, while iterating. Forbidden: the key lacks the scope `results:read`. NotFound:
                the server is public and has no keys, so that results have no owners.
        """
        cursor = None
        while True:
            page = await self._runner.run(self._exchanges.page(filters, cursor))
            for entry in page.results:
                yield entry
            if (cursor := page.next_cursor) is None:
                return

    async def thumbnail(self, result_id: str) -> Picture:
        """Return a stored result as WebP of at most 320 pixels a side, by its id or path; errors as for `results`."""
        return await self._runner.run(self._exchanges.thumbnail(id_at_end(result_id)))

    async def delete_result(self, result_id: str) -> None:
        """Delete a stored result: it can no longer be fetched. Copies that the server cannot reach are deleted later.

        Args:
            result_id: id or path of a result of this key.

        Raises:
            NotFound: this key has no such result.
            Gone: it was already deleted.
            Forbidden: the key lacks the scope `results:delete`.
        """
        await self._runner.run(self._exchanges.deletion(id_at_end(result_id)))

    async def models(self) -> tuple[Model, ...]:
        """Return the model versions of the server; errors as for `inpaint`."""
        return await self._runner.run(self._exchanges.models())

    async def close(self) -> None:
        """Close the connections."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> AsyncRetouch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _pictures(self, task: Task, pictures: Mapping[str, Source], options: Mapping[str, Any]) -> Result:
        call = await asyncio.to_thread(read_call, task, pictures, options, new_key, job=False)
        return await self._runner.run(self._exchanges.result(call))


class AsyncJob:
    """A job on the server: a call that it computes after the reply. `AsyncRetouch.submit` makes one."""

    def __init__(self, runner: AsyncExchangeRunner, exchanges: Exchanges, job_id: str) -> None:
        self._runner = runner
        self._exchanges = exchanges
        self.id = job_id

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def status(self) -> JobState:
        """Return the job's state.

        Raises:
            NotFound: the server does not know the job; it forgets a job an hour after its end.
        """
        return await self._state("GET")

    async def wait(self, timeout_s: float | None = None) -> Result:
        """Wait until the job ends and return its result, with one picture for each sample.

        A job outlives a restart of the server, so this goes on while no server answers, whatever `retry` says.

        Args:
            timeout_s: seconds to wait; None for as long as it takes.

        Raises:
            JobFailed, JobCancelled: the job ended without a result.
            JobUnfinished: the job has not ended, or its result was not fetched, in time; call `wait` again.
            NoReply, Refused: without `timeout_s`, no server answered for five minutes.
        """
        return await self._runner.run(self._exchanges.job_result(self.id, timeout_s))

    async def cancel(self) -> JobState:
        """Cancel the job and return its state; a job that has ended is unchanged."""
        return await self._state("DELETE")

    async def _state(self, method: Literal["GET", "DELETE"]) -> JobState:
        return await self._runner.run(self._exchanges.job(Call(method, f"/v1/jobs/{self.id}")))
