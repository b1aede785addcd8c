"""Pictures for the GPUs of engine processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engines.manifest import Manifest
from service.batching.backend import BackendModel, PictureRefused, SubmitOptions
from service.core.batch_rows import ComputedSample
from service.core.errors import NotReady
from service.core.picture_work import PictureWork
from service.processes.front_end.engine_client import EngineClient
from service.processes.front_end.orders import RemoteModel
from service.processes.front_end.pending import EngineProcessLost
from service.processes.shared.status_board import StatusBoard

Offering = Callable[[Manifest], Mapping[EngineClient, RemoteModel]]


class RemotePictures:
    """Hands each picture to the least loaded engine process that takes pictures.

    Args:
        offering: the engine processes that offer a model.
        board: has the load of the engine processes.
        clients: connections to the engine processes, by index.
        closed: whether the server shuts down; pictures are refused then, and `RemoteBatcher` says why.
    """

    def __init__(
        self, offering: Offering, board: StatusBoard, clients: Sequence[EngineClient], closed: Callable[[], bool]
    ) -> None:
        self._offering = offering
        self._closed = closed
        self._rows = {client: board.engine(index) for index, client in enumerate(clients)}

    @property
    def works(self) -> bool:
        """Whether an engine process takes pictures now."""
        return not self._closed() and any(client.ready and client.takes_pictures for client in self._rows)

    async def fill(self, work: PictureWork, model: BackendModel, options: SubmitOptions) -> ComputedSample:
        """Compute a picture, as `PictureFiller`.

        A process that is lost, or has lost its device worker, refuses it: the CPU decodes, and `RemoteBatcher` asks
        again.
        """
        if self._closed():
            raise PictureRefused("the server is shutting down")
        on = {client: remote for client, remote in self._offering(model.manifest).items() if client.takes_pictures}
        if not on:
            raise PictureRefused("no engine process takes pictures now")
        client = min(on, key=lambda client: (self._rows[client].load, client.unanswered_samples))
        try:
            return await client.fill(on[client], work, options)
        except EngineProcessLost:
            raise PictureRefused("the engine process was lost") from None
        except NotReady as error:
            if error.code != "worker_lost":
                raise
            raise PictureRefused(f"the engine process computes nothing now: {error}") from None
