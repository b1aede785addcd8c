"""Ray replicas behind HAProxy: the contract of tests/service/web, on a fixed port, with replicas that come and go.

All in one file, because a process can start Ray only once.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

pytest.importorskip("ray")  # an optional dependency
from service.core.settings import Settings, SettingsInvalid
from tests.service.ray.conftest import Cluster, Deployed
from tests.service.web import test_models_and_probes, test_results_and_jobs, test_routes
from tests.service.web.replies import poll
from tests.serving.backing.haproxy import HAPROXY
from tests.serving.backing.postgres_server import PostgresCluster
from tests.serving.backing.replicas import jobs_in, server_process
from tests.serving.backing.s3_server import serving_bucket
from tests.serving.served_process import MAX_START_S
from tests.serving.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed (apt-get install haproxy)"),
    # ray.serve.config and its schema were written for an older pydantic
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`:DeprecationWarning"),
]
Files = dict[str, tuple[str, bytes, str]]
_JOB = {"Prefer": "respond-async"}
_OF_ONE_SERVER = (
    "test_a_loaded_model_serves_while_others_still_load",
    "test_metrics_can_have_a_port_of_their_own",
    "test_the_port_of_metrics_has_no_other_path_that_a_probe_could_take_for_ready",
    "test_the_port_of_metrics_takes_every_version_that_a_scraper_asks_for",
)
"""Tests that choose how models load, which a replica's process does, or a port, which is refused here: a node may have
several replicas."""
_contract = {
    name: test
    for module in (test_routes, test_results_and_jobs, test_models_and_probes)
    for name, test in vars(module).items()
    if name.startswith("test_") and name not in _OF_ONE_SERVER
}
globals().update(_contract)


def outcome(reply: httpx.Response) -> str:
    return f"{reply.status_code}{'' if reply.is_success else reply.text}"


@pytest.mark.parametrize("killed", ["its server", "the whole replica"])
def test_a_killed_replica_costs_no_request(cluster: Cluster, deployed: Deployed, files: Files, killed: str) -> None:
    def ask(client: httpx.Client) -> str:
        return outcome(client.post("/v1/inpaint", files=files, data={"save": "false"}))

    victim = sorted(deployed.proxy.ready)[0]
    server = server_process(victim)  # found before the load: the search takes long on a busy machine
    doomed = server.pid if killed == "its server" else server.ppid()
    known = jobs_in(cluster.settings["results_dir"])
    with deployed.client() as client, ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(ask, client) for _ in range(160)]
        jobs: list[Future[httpx.Response]] = [
            pool.submit(client.post, "/v1/inpaint", files=files, headers=_JOB) for _ in range(20)
        ]
        wait_until(lambda: sum(one.done() for one in asked) >= 20)
        os.kill(doomed, signal.SIGKILL)
        unanswered = sum(not one.done() for one in asked)
        outcomes = Counter(one.result() for one in asked)
        assert outcomes == {"200": 160}
        assert Counter(outcome(one.result()) for one in jobs) == {"202": 20}
        ends = Counter(poll(client, job.result().headers["location"])["status"] for job in jobs)
    assert ends == {"succeeded": 20}
    assert len(jobs_in(cluster.settings["results_dir"]) - known) == 20, "a job was recorded twice"
    assert unanswered > 8, "nobody was inside when the replica was killed"
    wait_until(lambda: len(deployed.proxy.ready) == 2 and victim not in deployed.proxy.ready, MAX_START_S)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


def test_replicas_that_are_replaced_finish_what_is_inside_and_its_jobs(
    cluster: Cluster, deployed: Deployed, files: Files
) -> None:
    before = set(deployed.proxy.ready)
    with deployed.client() as client, ThreadPoolExecutor(9) as pool:
        replacing = pool.submit(cluster.deploy, "shared", 2, fake_batch_ms=20)
        jobs, asked = [], []
        while not replacing.done():
            jobs.append(client.post("/v1/inpaint", files=files, headers=_JOB))
            asked += [pool.submit(client.post, "/v1/inpaint", files=files) for _ in range(8)]
            assert outcome(asked[-1].result()) == "200"
        replacing.result()
        assert Counter(outcome(one.result()) for one in asked) == {"200": len(asked)}
        wait_until(lambda: not before & deployed.proxy.ready)
        ends = Counter(poll(client, job.headers["location"])["status"] for job in jobs)
    assert ends == {"succeeded": len(jobs)}


def test_deep_queues_add_a_replica(cluster: Cluster, serve: Callable[..., Deployed], files: Files) -> None:
    scaled = serve(replicas=(1, 2), fake_batch_ms=300, max_batch_size=1)
    with scaled.client() as client, ThreadPoolExecutor(12) as pool:
        asked: list[Future[httpx.Response]] = []

        def grown() -> bool:
            if sum(not one.done() for one in asked) < 12:
                asked.append(pool.submit(client.post, "/v1/inpaint", files=files, data={"save": "false"}))
            return len(scaled.proxy.ready) == 2

        wait_until(grown, MAX_START_S)
        assert {outcome(one.result()) for one in asked} == {"200"}


@pytest.fixture
def shared_ledger(tmp_path: Path, postgres: PostgresCluster) -> Iterator[dict[str, str]]:
    """Yield settings of servers that share PostgreSQL and a bucket, both of which outlive the servers."""
    with serving_bucket(tmp_path) as bucket:
        bucket.keep_folders("fleet")
        endpoint = f"http://127.0.0.1:{bucket.port}"
        yield {"ledger_url": postgres.new_database(), "results_url": "s3://results/fleet", "s3_endpoint": endpoint}


def test_replicas_share_jobs_and_keys_in_postgresql_also_those_of_one_that_is_killed(
    shared_ledger: dict[str, str], serve: Callable[..., Deployed], files: Files
) -> None:
    fleet = serve(replicas=(2, 2), fake_batch_ms=100, max_batch_size=1, **shared_ledger)
    with fleet.client() as client:
        keyed = [client.post("/v1/inpaint", files=files, headers={"Idempotency-Key": "k"}) for _ in range(4)]
        assert [outcome(one) for one in keyed] == ["200"] * 4
        assert len({one.headers["location"] for one in keyed}) == 1
        jobs = [client.post("/v1/inpaint", files=files, headers=_JOB) for _ in range(12)]
        assert Counter(map(outcome, jobs)) == {"202": 12}
        os.kill(server_process(sorted(fleet.proxy.ready)[0]).pid, signal.SIGKILL)
        ends = [poll(client, job.headers["location"]) for job in jobs]
        assert Counter(end["status"] for end in ends) == {"succeeded": 12}
        assert client.get(ends[0]["result_url"]).content == keyed[0].content


def test_the_file_for_a_cluster_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETOUCH_CONFIG", raising=False)
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415 -- warns when it is imported

    from service.ray.app import Arguments, build  # noqa: PLC0415

    text = (Path(__file__).parents[3] / "docker" / "ray" / "serve.yaml").read_text("utf-8")
    file = ServeDeploySchema.model_validate(yaml.safe_load(text))
    assert file.proxy_location == "Disabled", "requests do not pass Ray"
    (application,) = file.applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"
    options = _options(build(Arguments.model_validate(application.args)))
    assert options.ray_actor_options["num_gpus"] == 1
    assert options.graceful_shutdown_timeout_s > Settings().drain_timeout_s
    assert options.autoscaling_config.policy.policy_function == "service.ray.scaling:by_queue_depth"


def test_anonymous_clients_are_served_only_if_a_setting_allows_it() -> None:
    from service.ray.app import Arguments, build  # noqa: PLC0415 -- warns when it is imported

    with pytest.raises(SettingsInvalid, match="allow-anonymous"):
        build(Arguments())


@pytest.mark.parametrize(
    ("name", "value"),
    [("host", "0.0.0.0"), ("host", "::"), ("port", 8000), ("grpc_port", 8001), ("metrics_port", "9100")],
)
def test_an_address_that_a_replica_cannot_have_is_refused(name: str, value: object) -> None:
    from service.ray.app import Arguments, build  # noqa: PLC0415 -- warns when it is imported

    with pytest.raises(SettingsInvalid, match=f"settings: {name} .*leave it out"):
        build(Arguments(settings={"allow_anonymous": True, name: value}))


def _options(application: Any) -> Any:
    return application._bound_deployment._deployment_config.model_copy(
        update={"ray_actor_options": application._bound_deployment.ray_actor_options}
    )
