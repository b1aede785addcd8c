"""The application for Ray Serve: `import_path: service.ray.app:build` in docker/ray/serve.yaml.

Ray places, scales and replaces servers. Requests reach them through HAProxy (docker/ray/haproxy.cfg), not through Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from service.auth.exposure import check_exposure
from service.core.settings import SettingsInvalid, load_settings
from service.ray.registrar import Registrar
from service.ray.replica import Replica

PROXY = "retouch_proxy"
"""Resource of a node that has an HAProxy: `ray start --resources '{"retouch_proxy": 1}'`."""
_EVERY_ADDRESS = ("0.0.0.0", "::", "[::]")  # noqa: S104 -- refused
_DRAIN_DELAY_S = 3.0
"""Delay in seconds before a drain, in which HAProxy's health checks notice it; longer than two check intervals."""
_HEALTH_CHECK_INTERVAL_S = 2.0
"""Interval of Ray's health checks in seconds: a lost server is replaced sooner than with Ray's default of 10 s."""
_SHUTDOWN_CHECK_INTERVAL_S = 0.2
"""Interval in seconds at which Ray checks whether a process that must end is idle; its default is 2 s."""
_GRACE_S = 10.0
"""Seconds that a server may take to end after its drain; then Ray waits as long again."""


class Arguments(BaseModel):
    """The application's arguments: `args` in serve.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_replicas: int = Field(1, ge=1, description="minimum number of replicas")
    max_replicas: int = Field(
        1, ge=1, description="maximum number of replicas; Ray scales by load if it is above min_replicas"
    )
    gpus: float = Field(0.0, ge=0, description="GPUs of each replica; a fraction shares one GPU")
    cpus: float = Field(1.0, gt=0, description="CPUs of each replica, for Ray's scheduling")
    queue_depth: float = Field(
        0.0, ge=0, description="samples that wait in a replica before another is added; 0 means a full batch"
    )
    upscale_delay_s: float = Field(10.0, ge=0, description="how long queues must be deep before a replica is added")
    downscale_delay_s: float = Field(
        300.0, ge=0, description="how long queues must be short before a replica is removed"
    )
    proxies: int = Field(1, ge=1, description="nodes with an HAProxy, each with the resource retouch_proxy")
    proxy_socket: str = Field("/run/haproxy/retouch.sock", description="HAProxy's socket for commands on those nodes")
    settings: dict[str, Any] = Field(
        {}, description="the server's settings without ports, as in a config file; they override RETOUCH_… of the node"
    )


def build(arguments: Arguments) -> Application:
    """Build the application that Ray deploys.

    Raises:
        SettingsInvalid: a setting is unknown, misspelt or out of range, the servers would be open to anybody, or a
            replica cannot have the requested address.
    """
    _check_addresses(arguments.settings)
    chosen = {"drain_delay_s": _DRAIN_DELAY_S, **arguments.settings}
    settings = load_settings({"host": "0.0.0.0", **chosen})  # noqa: S104 -- any node's address; nothing is bound here
    check_exposure(settings)
    registrars = [_registrar(number, arguments) for number in range(1, arguments.proxies + 1)]
    longest_stop_s = settings.drain_delay_s + settings.drain_timeout_s + _GRACE_S
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
        "graceful_shutdown_timeout_s": longest_stop_s + _GRACE_S,
        "graceful_shutdown_wait_loop_s": _SHUTDOWN_CHECK_INTERVAL_S,
        "health_check_period_s": _HEALTH_CHECK_INTERVAL_S,
    }
    if arguments.max_replicas > arguments.min_replicas:
        options["autoscaling_config"] = {
            "min_replicas": arguments.min_replicas,
            "max_replicas": arguments.max_replicas,
            "policy": {"policy_function": "service.ray.scaling:by_queue_depth"},
            "upscale_delay_s": arguments.upscale_delay_s,
            "downscale_delay_s": arguments.downscale_delay_s,
        }
    else:
        options["num_replicas"] = arguments.min_replicas
    depth = arguments.queue_depth or float(settings.max_batch_size)
    deployment = serve.deployment(name="server", **options)(Replica)
    return deployment.bind(chosen, depth, longest_stop_s, registrars)


def _check_addresses(settings: Mapping[str, Any]) -> None:
    for name in ("port", "grpc_port", "metrics_port"):
        if settings.get(name):
            raise SettingsInvalid(
                f"settings: {name} cannot be set, as a node may have several replicas: leave it out, and each gets "
                "free ports (gRPC is not served behind HAProxy)"
            )
    if settings.get("host") in _EVERY_ADDRESS:
        raise SettingsInvalid(
            f"settings: host {settings['host']} is not an address at which the proxies can reach a replica: leave it "
            "out, and each listens on its node's address"
        )


def _registrar(number: int, arguments: Arguments) -> Application:
    options: dict[str, Any] = {
        "num_replicas": 1,
        "ray_actor_options": {"num_cpus": 0, "resources": {PROXY: 1}},
        "graceful_shutdown_wait_loop_s": _SHUTDOWN_CHECK_INTERVAL_S,
        "health_check_period_s": _HEALTH_CHECK_INTERVAL_S,
    }
    return serve.deployment(name=f"proxy-{number}", **options)(Registrar).bind(arguments.proxy_socket)
