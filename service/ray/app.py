"""The deployment for Ray Serve: `import_path: service.ray.app:build` in docker/ray/serve.yaml.

Ray's own limit of requests for each replica is so high that the server's admission refuses first, with a computed
Retry-After. Ray scales by the number of requests in flight.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from service.core.settings import load_settings
from service.ray.replica import Replica

_SPARE = 64
"""Additional requests for each replica, for probes, lists and results, which admission does not count."""
_LOOK_EVERY_S = 2.0
"""Interval of Ray's health checks, so that a lost replica is replaced sooner than with Ray's default of 10 s."""
_REPLIES_S = 10.0
"""Time that Ray waits beyond the drain, so that it never cuts the drain short."""


class Arguments(BaseModel):
    """The deployment's arguments: `args` in serve.yaml."""

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
    """Build the application that Ray deploys.

    Raises:
        SettingsInvalid: a setting is unknown, misspelt or out of range.
    """
    # Ray's proxies may listen on any address, so a server without keys must set allow_anonymous
    settings = load_settings({"host": "0.0.0.0", **arguments.settings})  # noqa: S104 -- nothing is bound here

    def application() -> Replica:
        return Replica(settings)

    class Retouch:
        """One replica."""

        app: Replica

        def check_health(self) -> None:
            """Raise if the replica has lost its device, so that Ray replaces it."""
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
