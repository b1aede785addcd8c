"""The deployment for Ray Serve: `import_path: service.ray.app:build` in docker/ray/serve.yaml.

Backpressure is ours: Ray lets so many requests into a replica that the server's own admission refuses first, with a
computed Retry-After. Ray scales on the requests inside, which is the queue's depth.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from service.core.settings import load_settings
from service.ray.replica import Replica

_SPARE = 64
"""Requests beyond all that may be inside: probes, lists and results are not counted by admission."""
_LOOK_EVERY_S = 2.0
"""How soon Ray sees that a replica is gone, and starts another; its own 10 s are long for the others."""
_REPLIES_S = 10.0
"""For Ray to wait longer than the drain, so that it never cuts one short."""


class Arguments(BaseModel):
    """`args` in serve.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(1, ge=1, description="replicas that there always are")
    max_replicas: int = Field(1, ge=1, description="replicas that there may be; more than the least scales by itself")
    gpus: float = Field(0.0, ge=0, description="of each replica; a fraction shares one, whole ones are its own")
    cpus: float = Field(1.0, gt=0, description="of each replica, for Ray's bookkeeping")
    target_requests: float = Field(
        0.0, ge=0, description="requests inside a replica that are wanted; 0 means two full batches"
    )
    upscale_delay_s: float = Field(10.0, ge=0, description="how long there must be more before a replica is added")
    downscale_delay_s: float = Field(300.0, ge=0, description="how long there must be fewer before one is removed")
    settings: dict[str, Any] = Field({}, description="the server's, as in a config file; RETOUCH_… of the node below")


def build(arguments: Arguments) -> Application:
    """The application that Ray deploys.

    Raises:
        SettingsInvalid: a setting is unknown, misspelt or out of range.
    """
    # what proxies listen on is Ray's to say: whoever means to ask nobody for a key has to say so
    settings = load_settings({"host": "0.0.0.0", **arguments.settings})  # noqa: S104 -- nothing is bound here

    def application() -> Replica:
        return Replica(settings)

    class Retouch:
        """One replica."""

        app: Replica

        def check_health(self) -> None:
            """Ray replaces a replica that has lost its device; a worker that died is replaced within."""
            self.app.check_health()

    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
        "max_ongoing_requests": settings.max_queue_size + settings.max_uploads + _SPARE,
        "max_queued_requests": -1,
        "graceful_shutdown_timeout_s": settings.drain_timeout_s + _REPLIES_S,
        "graceful_shutdown_wait_loop_s": 0.2,
        "health_check_period_s": _LOOK_EVERY_S,
    }
    if arguments.max_replicas > arguments.min_replicas:
        options["autoscaling_config"] = {
            "min_replicas": arguments.min_replicas,
            "max_replicas": arguments.max_replicas,
            "target_ongoing_requests": arguments.target_requests or 2.0 * settings.max_batch_size,
            "upscale_delay_s": arguments.upscale_delay_s,
            "downscale_delay_s": arguments.downscale_delay_s,
        }
    else:
        options["num_replicas"] = arguments.min_replicas
    return serve.deployment(**options)(serve.ingress(application)(Retouch)).bind()
