"""Ray Serve with two replicas: the HTTP contract of tests/service/web, and what happens when replicas go.

One Ray for the whole module, on loopback, and no more replicas than must be: each process of Ray's takes a second or
two of a core to start. Whoever takes replicas away leaves what there is to the tests below it.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ray = pytest.importorskip("ray")  # without it there is nothing to be run
from service.core.settings import Settings, SettingsInvalid  # noqa: E402
from tests.service.web import test_models_and_probes, test_results_and_jobs, test_routes  # noqa: E402 -- see above
from tests.service.web.replies import poll  # noqa: E402
from tests.serving.fake_models import write_photos_and_facades  # noqa: E402
from tests.serving.waiting import wait_until  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # ray.serve.config and its schema are written for an older pydantic
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`:DeprecationWarning"),
]
Files = dict[str, tuple[str, bytes, str]]
_OWN_SERVER = {
    "test_a_saved_result_can_be_fetched_with_its_sidecar": "looks into the folder of a server of its own",
    "test_an_unsaved_result_has_no_location": "looks into the folder of a server of its own",
    "test_a_job_can_be_cancelled_and_gives_its_place_back": "looks into the server's memory",
    "test_a_new_version_is_served_without_a_restart_and_a_broken_one_is_not": "changes the models of all other tests",
    "test_an_empty_repository_is_alive_but_not_ready": "needs other settings",
    "test_metrics_count_requests_stages_batches_and_saves": "counts what a single server has done",
    "test_metrics_can_have_a_port_of_their_own": "needs other settings",
    "test_a_body_that_does_not_come_in_time_is_given_up": "needs other settings",
    "test_pictures_wait_for_memory_and_each_other": "needs other settings",
}
"""Tests of the contract that one deployment shared by all cannot run, and why."""
_contract = {
    name: test
    for module in (test_routes, test_results_and_jobs, test_models_and_probes)
    for name, test in vars(module).items()
    if name.startswith("test_")
}
assert set(_OWN_SERVER) < set(_contract)
globals().update({name: test for name, test in _contract.items() if name not in _OWN_SERVER})


@dataclass
class Deployed:
    """The server that `serve` gives the tests of the contract."""

    url: str

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, **options)


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Start Ray once; `deploy(replicas, **settings)` gives their URL."""
    from service.ray.app import Arguments, build  # noqa: PLC0415 -- imports Ray
    from service.ray.proxy import IMPORT_PATH, VARIABLE  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("ray")
    fixed_settings = {
        "allow_anonymous": True,
        "models_dir": write_photos_and_facades(folder / "models"),
        "results_dir": folder / "results",
        "engine_cache_dir": folder / "cache",
        "engine": "fake",
        "codec_threads": 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, IMPORT_PATH)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # a busy machine is slow to start one
        patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # each of Ray's processes would measure itself
        (folder / "token").write_text(secrets.token_hex(32))
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "token"))  # else it writes one into the home directory
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 * 2**20,
            logging_level="error",
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        from ray import serve  # noqa: PLC0415

        port = _free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})

        def run(replicas: int, **settings: Any) -> str:
            arguments = Arguments(
                min_replicas=replicas, max_replicas=replicas, cpus=0.5, settings={**fixed_settings, **settings}
            )
            serve.run(build(arguments), name="retouch", route_prefix="/", logging_config={"log_level": "ERROR"})
            return f"http://127.0.0.1:{port}"

        yield run
        ray.shutdown()


@pytest.fixture(scope="module")
def deployed(deploy: Callable[..., str]) -> str:
    return deploy(2, fake_batch_ms=30)


@pytest.fixture
def serve(deployed: str) -> Callable[..., Deployed]:
    """Instead of a server of each test's own."""
    return lambda: Deployed(deployed)


@pytest.fixture
def server(deployed: str) -> Deployed:
    """Instead of the one that a module's tests share."""
    return Deployed(deployed)


def test_a_replica_that_is_killed_under_load_costs_no_request_its_answer(deployed: str, files: Files) -> None:
    def ask(client: httpx.Client) -> str:
        return _outcome(client.post("/v1/inpaint", files=files, data={"save": "false"}))

    with Deployed(deployed).client() as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client) for _ in range(160)]
        wait_until(lambda: sum(one.done() for one in asked) >= 20)
        victim, survivor = _replicas()
        ray.kill(ray.get_actor(victim, namespace="serve"), no_restart=True)
        unanswered = sum(not one.done() for one in asked)
        assert Counter(one.result() for one in asked) == {"200": 160}
    assert unanswered > 8, "nobody was inside when the replica was killed"
    wait_until(lambda: {victim, survivor} & set(_replicas()) == {survivor} and len(_replicas()) == 2)


def test_replicas_that_are_replaced_finish_what_is_inside_and_its_jobs(
    deploy: Callable[..., str], deployed: str, files: Files
) -> None:
    before = _replicas()
    with Deployed(deployed).client() as client, ThreadPoolExecutor(8) as pool:
        jobs = [client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"}) for _ in range(8)]
        asked = [pool.submit(client.post, "/v1/inpaint", files=files) for _ in range(80)]
        deploy(1, fake_batch_ms=20)
        assert Counter(_outcome(one.result()) for one in asked) == {"200": 80}
        wait_until(lambda: not set(before) & set(_replicas()))
        ends = [poll(client, job.headers["location"])["status"] for job in jobs]
    assert ends == ["succeeded"] * 8


def test_a_body_behind_an_upgrade_is_not_read_as_a_request_by_the_proxy_either(deployed: str) -> None:
    hidden = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: hidden\r\n\r\n"
    head = (
        b"POST /v1/inpaint HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: own\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(deployed.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(hidden))
        time.sleep(0.3)
        connection.sendall(
            hidden + b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: last\r\nConnection: close\r\n\r\n"
        )
        received = b""
        while data := connection.recv(65536):
            received += data
    assert re.findall(rb"x-request-id: (\w+)", received) == [b"own", b"last"]


def test_a_request_id_that_is_not_safe_is_not_repeated_by_the_proxy_either(deployed: str) -> None:
    with Deployed(deployed).client() as client:
        for given, expected in (("a b;c", None), ("mine", "mine")):
            ids = client.get("/livez", headers={"X-Request-ID": given}).headers.get_list("x-request-id")
            assert len(ids) == 1
            assert ids[0] == expected if expected else len(ids[0]) == 32


def test_strangers_are_served_only_if_that_is_said() -> None:
    from service.ray.replica import Replica  # noqa: PLC0415

    with pytest.raises(SettingsInvalid, match="allow-anonymous"):
        Replica(Settings(host="0.0.0.0"))


def test_the_file_for_a_cluster_is_valid_and_lets_our_own_admission_refuse() -> None:
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

    from service.ray.app import Arguments, build  # noqa: PLC0415

    file = yaml.safe_load((Path(__file__).parents[3] / "docker" / "ray" / "serve.yaml").read_text("utf-8"))
    (application,) = ServeDeploySchema.model_validate(file).applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"
    deployment = build(Arguments.model_validate(application.args))._bound_deployment
    assert deployment.ray_actor_options["num_gpus"] == 1
    config = deployment._deployment_config
    assert config.max_ongoing_requests > Settings().max_queue_size + Settings().max_uploads
    assert config.max_queued_requests == -1
    assert config.autoscaling_config.target_ongoing_requests == 32
    assert config.graceful_shutdown_timeout_s > Settings().drain_timeout_s


def _outcome(reply: httpx.Response) -> str:
    return f"{reply.status_code}{'' if reply.is_success else reply.text}"


def _replicas() -> list[str]:
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["name"].startswith("SERVE_REPLICA::")]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
