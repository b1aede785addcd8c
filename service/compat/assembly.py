"""The foreign APIs that a server speaks, over HTTP and over gRPC."""

from __future__ import annotations

from collections.abc import Collection

from service.compat.automatic1111.routes import AUTOMATIC1111
from service.compat.iopaint.routes import IOPAINT
from service.compat.open_inference.routes import OPEN_INFERENCE
from service.compat.openai.routes import OPENAI
from service.core.settings import Settings
from service.web.foreign_api import ForeignApi
from service.web.server import OpenExtraServer

_APIS = (OPENAI, IOPAINT, OPEN_INFERENCE, AUTOMATIC1111)


def foreign_apis(names: Collection[str]) -> tuple[ForeignApi, ...]:
    """Return the foreign APIs with these names, which are those that the setting `apis` allows."""
    return tuple(api for api in _APIS if api.name in names)


def grpc_server_opener(settings: Settings) -> OpenExtraServer | None:
    """Return the function that opens the gRPC server; None if gRPC is off."""
    if not settings.grpc_port:
        return None
    from service.grpc.server import open_grpc_server  # noqa: PLC0415 -- grpcio is an extra

    return open_grpc_server
