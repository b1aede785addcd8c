"""The methods other than ModelInfer: health, metadata, configuration, index and statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from engines.repository.versions import ModelStatus
from service.core.errors import InvalidRequest
from service.grpc.call import Answer, RemoteCall
from service.grpc.protocol import open_inference_pb2 as messages
from service.open_inference import models

MessageT = TypeVar("MessageT", bound=Message)
_MAX_BYTES = 4096


async def server_live(_: RemoteCall) -> Answer:
    """Answer that the process runs its event loop; the message has no fields and is not read."""
    return Answer(messages.ServerLiveResponse(live=True).SerializeToString())


async def server_ready(call: RemoteCall) -> Answer:
    """Answer whether the server accepts work; the message has no fields and is not read."""
    is_ready = not call.service.unready_reasons()
    return Answer(messages.ServerReadyResponse(ready=is_ready).SerializeToString())


async def server_metadata(call: RemoteCall) -> Answer:
    """Return name, version and extensions of the server."""
    await _read(call, messages.ServerMetadataRequest)
    return _answer(models.server_metadata(), messages.ServerMetadataResponse())


async def model_ready(call: RemoteCall) -> Answer:
    """Answer whether a model can be used."""
    status = await _read_model(call, messages.ModelReadyRequest)
    return Answer(messages.ModelReadyResponse(ready=status.state != "refused").SerializeToString())


async def model_metadata(call: RemoteCall) -> Answer:
    """Return the inputs and outputs of a model."""
    status = await _read_model(call, messages.ModelMetadataRequest)
    described = models.metadata(status, call.service.models.statuses())
    return _answer(described, messages.ModelMetadataResponse())


async def model_config(call: RemoteCall) -> Answer:
    """Return the configuration of a model."""
    status = await _read_model(call, messages.ModelConfigRequest)
    return _answer({"config": models.config(status)}, messages.ModelConfigResponse())


async def model_statistics(call: RemoteCall) -> Answer:
    """Return the statistics of a model, or of all if none is named, over all APIs of the server."""
    request = await _read(call, messages.ModelStatisticsRequest)
    statuses = call.service.models.statuses()
    chosen = [models.find_status(statuses, request.name, request.version)] if request.name else statuses
    exposition = await asyncio.to_thread(call.service.metrics.exposition)
    return _answer(models.statistics(exposition, chosen), messages.ModelStatisticsResponse())


async def repository_index(call: RemoteCall) -> Answer:
    """Return every version of every model, and its state."""
    request = await _read(call, messages.RepositoryIndexRequest)
    found = models.index(call.service.models.statuses(), ready=request.ready)
    return _answer({"models": found}, messages.RepositoryIndexResponse())


async def _read_model(
    call: RemoteCall,
    kind: type[messages.ModelReadyRequest | messages.ModelMetadataRequest | messages.ModelConfigRequest],
) -> ModelStatus:
    """Return the model that a message names.

    Raises:
        NotFound: there is no such model.
        InvalidRequest, TooLarge: as `_read`.
    """
    request = await _read(call, kind)
    return models.find_status(call.service.models.statuses(), request.name, request.version)


async def _read(call: RemoteCall, kind: type[MessageT]) -> MessageT:
    """Read a small message.

    Raises:
        InvalidRequest, TooLarge: the message cannot be read as this kind.
        UploadTimeout: the message does not arrive within `body_timeout_s`.
    """
    message = await call.read_in_time(_MAX_BYTES)
    try:
        found: MessageT = kind.FromString(message)
    except DecodeError as error:
        raise InvalidRequest(f"the message is not a {kind.DESCRIPTOR.name}") from error
    return found


def _answer(described: Mapping[str, Any], message: Message) -> Answer:
    """Return an answer with a description, without the fields that only its JSON form has."""
    return Answer(ParseDict(dict(described), message, ignore_unknown_fields=True).SerializeToString())
