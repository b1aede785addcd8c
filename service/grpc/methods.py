"""The methods of the service, and who may call each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from service.grpc import describing
from service.grpc.call import Answer, RemoteCall
from service.grpc.inferring import infer

SERVICE = "/inference.GRPCInferenceService/"


@dataclass(frozen=True, slots=True)
class Method:
    """A method. public: whether it needs no key. work: whether it computes pictures, and counts for a daily quota."""

    answer: Callable[[RemoteCall], Awaitable[Answer]]
    public: bool = False
    work: bool = False


METHODS = {
    f"{SERVICE}{name}": method
    for name, method in {
        "ServerLive": Method(describing.server_live, public=True),
        "ServerReady": Method(describing.server_ready, public=True),
        "ServerMetadata": Method(describing.server_metadata),
        "ModelReady": Method(describing.model_ready),
        "ModelMetadata": Method(describing.model_metadata),
        "ModelConfig": Method(describing.model_config),
        "ModelStatistics": Method(describing.model_statistics),
        "RepositoryIndex": Method(describing.repository_index),
        "ModelInfer": Method(infer, work=True),
    }.items()
}
"""The methods by their paths; any other path needs a key, too, and is answered UNIMPLEMENTED."""
