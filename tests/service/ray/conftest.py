"""One Ray cluster on loopback for a file's tests, with two HAProxies: one for the app that all tests share, one for
apps of single tests.

Each process of Ray takes a core for a second or two to start, so there are as few replicas as possible.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.backing.haproxy import Proxy, haproxy
from tests.serving.backing.s3_server import KEY, SECRET
from tests.serving.fake_models import write_photos_and_facades
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

_SHARED, _OWN = "shared", "own"


@dataclass(frozen=True)
class Deployed:
    """Servers behind HAProxy, with the interface of a server in this process."""

    proxy: Proxy

    @property
    def url(self) -> str:
        return self.proxy.url

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, **options)


@dataclass(frozen=True)
class Cluster:
    """A running Ray, and the proxies of its apps."""

    proxies: dict[str, Proxy]
    settings: dict[str, Any]

    def deploy(
        self, name: str, replicas: int, most: int | None = None, *, wait: bool = True, **settings: Any
    ) -> Deployed:
        """Deploy an app, replacing the one with its name, and wait until HAProxy knows its replicas."""
        from ray import serve  # noqa: PLC0415 -- not without Ray
        from ray.serve import RunTarget  # noqa: PLC0415

        from service.ray.app import Arguments, build  # noqa: PLC0415

        proxy = self.proxies[name]
        before = proxy.ready
        arguments = Arguments(
            min_replicas=replicas,
            max_replicas=most or replicas,
            cpus=0.1,
            upscale_delay_s=1,
            proxy_socket=str(proxy.socket),
            settings={**self.settings, **settings},
        )
        target = RunTarget(build(arguments), name=name, route_prefix=None, logging_config={"log_level": "ERROR"})
        serve.run_many([target], wait_for_applications_running=wait)
        deployed = Deployed(proxy)
        if wait:
            wait_until(lambda: len(proxy.ready - before) == replicas, timeout_s=180)
        else:
            wait_until(lambda: httpx.get(f"{proxy.url}/livez").status_code == 200, timeout_s=180)
        return deployed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start Ray and the proxies."""
    import ray  # noqa: PLC0415 -- not without Ray

    folder = tmp_path_factory.mktemp("ray")
    settings = {
        "allow_anonymous": True,
        "host": "127.0.0.1",  # by default Ray takes the node's address, which is not loopback
        "models_dir": write_photos_and_facades(folder / "models"),
        "results_dir": folder / "results",
        "engine_cache_dir": folder / "cache",
        "engine": "fake",
        "model_poll_s": 0.05,
        "codec_threads": 2,
        "workers": 0,
        "apis": "",
        "drain_delay_s": 3,
        "drain_timeout_s": 20,
    }
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # by default 15: busy tests beside it would leave a replica no core
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        (folder / "token").write_text(secrets.token_hex(32))
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "token"))  # else it writes one into the home directory
        proxies = {}
        for name in (_SHARED, _OWN):
            short = Path(tempfile.mkdtemp(prefix="proxy-"))  # a socket's path has at most 107 bytes
            stack.callback(shutil.rmtree, short, ignore_errors=True)
            timeout = "3s" if name == _OWN else "30s"
            proxies[name] = stack.enter_context(haproxy(short, free_port(), timeout))
        ray.init(
            num_cpus=2,
            resources={"retouch_proxy": len(proxies)},
            include_dashboard=False,
            object_store_memory=80 * 2**20,
            logging_level="error",
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        stack.callback(ray.shutdown)
        from ray import serve  # noqa: PLC0415 -- reads the environment when it is imported

        serve.start(proxy_location="Disabled")
        yield Cluster(proxies, settings)


@pytest.fixture(scope="module")
def deployed(cluster: Cluster) -> Deployed:
    """An app of two replicas that a file's tests share."""
    return cluster.deploy(_SHARED, 2, fake_batch_ms=30)


@pytest.fixture
def server(deployed: Deployed) -> Deployed:
    """The shared app, in place of the fixture `server` of tests/service."""
    return deployed


@pytest.fixture
def serve(cluster: Cluster, models_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Deployed]]:
    """Deploy an app with one replica for the test, in place of the fixture `serve` of tests/service."""
    folders = {"models_dir": models_dir, "results_dir": tmp_path / "results", "engine_cache_dir": tmp_path / "cache"}
    unready: list[tuple[Deployed, Path]] = []

    def start(*, wait: bool = True, replicas: tuple[int, int] = (1, 1), **settings: Any) -> Deployed:
        chosen = {**folders, "drain_delay_s": 0, "drain_timeout_s": 1, **settings}
        deployed = cluster.deploy(_OWN, *replicas, wait=wait, **chosen)
        if not wait:
            unready.append((deployed, chosen["models_dir"]))
        return deployed

    yield start
    for deployed, models in unready:  # Ray waits 21 s for a replica that was never ready
        write_photos_and_facades(models)
        wait_until(lambda url=deployed.url: httpx.get(f"{url}/readyz").status_code == 200)
    from ray import serve as ray_serve  # noqa: PLC0415 -- not without Ray

    ray_serve.delete(_OWN)
