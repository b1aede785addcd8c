"""Each overlay fits Kubernetes' schema, and keeps the promises of compose.yaml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.core.settings import SettingsInvalid, load_settings
from service.lifecycle.drain import MIN_FLUSH_S
from service.telemetry.metrics import Metrics
from tests.docker.compose_file import DOCKER

pytestmark = pytest.mark.slow

FOLDER = DOCKER / "kubernetes"
OVERLAYS = ("cpu", "gpu", "fleet")
VERSIONS = ("1.29", "1.34")
Resources = list[dict[str, Any]]
every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


@cache
def made(overlay: str) -> Resources:
    """Return the objects that `kubectl kustomize` builds from an overlay."""
    return rendered(FOLDER / "overlays" / overlay)


def rendered(folder: Path) -> Resources:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl, which has kustomize in it, is not here")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def only(overlay: str, kind: str) -> dict[str, Any]:
    (found,) = (resource for resource in made(overlay) if resource["kind"] == kind)
    return found


def server(overlay: str) -> dict[str, Any]:
    return only(overlay, "Deployment" if overlay == "fleet" else "StatefulSet")


def pod(overlay: str) -> dict[str, Any]:
    found = server(overlay)["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def container(overlay: str) -> dict[str, Any]:
    (found,) = pod(overlay)["containers"]
    assert isinstance(found, dict)
    return found


def filler(overlay: str) -> dict[str, Any]:
    """Return the init container that copies models into a volume claim without any."""
    (found,) = pod(overlay)["initContainers"]
    assert isinstance(found, dict)
    return found


@every_overlay
@pytest.mark.parametrize("version", VERSIONS)
def test_what_kustomize_makes_fits_the_schema_strictly(overlay: str, version: str) -> None:
    for resource in made(overlay):
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_would_be_noticed(version: str) -> None:
    wrong = {**only("fleet", "PodDisruptionBudget"), "spec": {"maxUnavailabel": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_each_overlay_has_its_kinds() -> None:
    every = {"Service", "Ingress", "NetworkPolicy", "PersistentVolumeClaim"}
    kinds = {overlay: {resource["kind"] for resource in made(overlay)} for overlay in OVERLAYS}
    one, fleet = every | {"StatefulSet"}, every | {"Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget"}
    assert kinds == {"cpu": one, "gpu": one, "fleet": fleet}


@every_overlay
def test_every_file_of_the_folder_is_listed_by_a_kustomization(overlay: str) -> None:
    for folder in (FOLDER / "base", FOLDER / "overlays" / overlay, FOLDER / "components/pod-monitor"):
        listed = (folder / "kustomization.yaml").read_text()
        assert [path.name for path in folder.glob("*.yaml") if path.name not in listed] == ["kustomization.yaml"]


@every_overlay
def test_selectors_find_the_pods(overlay: str) -> None:
    labels = server(overlay)["spec"]["template"]["metadata"]["labels"]
    assert labels
    selectors = [
        server(overlay)["spec"]["selector"]["matchLabels"],
        only(overlay, "Service")["spec"]["selector"],
    ]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in made(overlay) if one["kind"] == "NetworkPolicy"]
    if overlay == "fleet":
        selectors.append(only(overlay, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    assert all(selector == labels for selector in selectors)


@every_overlay
def test_the_ingress_leads_to_the_server_under_a_name_that_it_knows(overlay: str) -> None:
    (rule,) = only(overlay, "Ingress")["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    service, (port,) = only(overlay, "Service"), only(overlay, "Service")["spec"]["ports"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}
    assert port["targetPort"] in {one["name"] for one in container(overlay)["ports"]}
    names = {entry["name"]: entry.get("value", "") for entry in container(overlay)["env"]}
    assert rule["host"] in names["RETOUCH_PUBLIC_HOST"].split(",")


def test_the_pod_monitor_finds_the_pods_and_their_port(tmp_path: Path) -> None:
    for overlay in OVERLAYS:
        relative = os.path.relpath(FOLDER, tmp_path)
        (tmp_path / "kustomization.yaml").write_text(
            f"resources: [{relative}/overlays/{overlay}]\ncomponents: [{relative}/components/pod-monitor]\n"
        )
        resources = rendered(tmp_path)
        (monitor,) = (resource for resource in resources if resource["kind"] == "PodMonitor")
        labels = server(overlay)["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for port in container(overlay)["ports"]}


def test_the_autoscaler_follows_a_series_that_the_server_has() -> None:
    spec = only("fleet", "HorizontalPodAutoscaler")["spec"]
    (metric,) = spec["metrics"]
    served = {family.name for family in Metrics().registry.collect()}
    assert metric["pods"]["metric"]["name"] in served
    scaled = server("fleet")
    assert spec["scaleTargetRef"] == {
        "apiVersion": scaled["apiVersion"],
        "kind": scaled["kind"],
        "name": scaled["metadata"]["name"],
    }
    assert "replicas" not in scaled["spec"], "each apply would undo what the autoscaler chose"


@every_overlay
def test_its_settings_exist_and_it_is_given_more_time_to_end_than_it_takes(overlay: str) -> None:
    environ = {entry["name"]: entry.get("value", "") for entry in container(overlay)["env"]}
    settings = load_settings(environ={name: value for name, value in environ.items() if name.startswith("RETOUCH_")})
    grace_s = pod(overlay)["terminationGracePeriodSeconds"]
    assert grace_s >= settings.drain_delay_s + settings.drain_timeout_s + 2 + 2 * MIN_FLUSH_S
    ports = {port["name"]: port["containerPort"] for port in container(overlay)["ports"]}
    assert ports == {"http": settings.port, "metrics": settings.metrics_port}
    assert bool(settings.ledger_url) == bool(settings.results_url) == (overlay == "fleet")


def test_secrets_are_named_and_never_written() -> None:
    known = {"retouch-keys", "retouch-s3", "retouch-ledger"}
    volumes = {volume["secret"]["secretName"] for volume in pod("fleet")["volumes"] if "secret" in volume}
    references = [entry["valueFrom"] for entry in container("fleet")["env"] if "valueFrom" in entry]
    assert volumes | {reference["secretKeyRef"]["name"] for reference in references} == known
    written = (FOLDER / "overlays/fleet/kustomization.yaml").read_text()
    assert all(f"create secret generic {name} " in written for name in known)
    environ = {entry["name"]: entry.get("value", "") for entry in container("fleet")["env"]}
    assert environ["PGPASSWORD"] == ""
    assert re.fullmatch(r"postgresql://[^:@]+@[^@]+", environ["RETOUCH_LEDGER_URL"]), "an address without a password"


def test_pods_of_a_fleet_reach_the_database() -> None:
    policies = [one["spec"] for one in made("fleet") if one["kind"] == "NetworkPolicy"]
    ports = {port["port"] for spec in policies for rule in spec.get("egress", []) for port in rule["ports"]}
    assert ports == {53, 443, 5432}


@every_overlay
def test_what_a_reply_promises_outlives_the_pod(overlay: str) -> None:
    """Promised results are in a claim of the pod, or in the bucket."""
    own = {claim["metadata"]["name"] for claim in server(overlay)["spec"].get("volumeClaimTemplates", [])}
    (spool,) = (mount["name"] for mount in container(overlay)["volumeMounts"] if mount["mountPath"] == "/results")
    environ = {entry["name"]: entry.get("value", "") for entry in container(overlay)["env"]}
    assert (spool in own) != (environ.get("RETOUCH_PROMISE") == "store")


@every_overlay
def test_a_gpu_is_asked_for_where_there_is_to_be_one(overlay: str) -> None:
    assert container(overlay)["resources"]["limits"].get("nvidia.com/gpu") == (None if overlay == "cpu" else "1")


@every_overlay
def test_a_services_own_variables_are_kept_from_pods_whose_settings_they_would_be(overlay: str) -> None:
    service = only(overlay, "Service")["metadata"]["name"].upper()
    with pytest.raises(SettingsInvalid, match="enableServiceLinks"):
        load_settings(environ={f"{service}_SERVICE_HOST": "10.0.0.1", f"{service}_PORT": "tcp://10.0.0.1:80"})
    assert pod(overlay)["enableServiceLinks"] is False


@every_overlay
def test_the_containers_are_confined_and_write_only_to_volumes(overlay: str) -> None:
    for confined in (container(overlay), filler(overlay)):
        security = confined["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(confined["resources"])
    user = re.findall(r"USER (\d+):(\d+)", (DOCKER / "gpu.Dockerfile").read_text())
    security = pod(overlay)["securityContext"]
    assert {(str(security["runAsUser"]), str(security["runAsGroup"]))} == set(user)
    own = {claim["metadata"]["name"] for claim in server(overlay)["spec"].get("volumeClaimTemplates", [])}
    volumes = pod(overlay)["volumes"]
    mounted = {mount["name"] for mount in container(overlay)["volumeMounts"]}
    assert mounted == own | {volume["name"] for volume in volumes}
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
    made_claims = {one["metadata"]["name"]: one for one in made(overlay) if one["kind"] == "PersistentVolumeClaim"}
    assert claims == set(made_claims)
    modes = {mode for claim in made_claims.values() for mode in claim["spec"]["accessModes"]}
    assert modes == {"ReadWriteMany" if overlay == "fleet" else "ReadWriteOnce"}


@every_overlay
def test_probes_ask_what_they_should(overlay: str) -> None:
    probed = container(overlay)
    paths = {kind: probed[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}


@pytest.fixture
def image_models(tmp_path: Path) -> Path:
    """A stand-in for the image's /models, beside an empty folder `claim`."""
    for name in ("facades/2", "photos/5"):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(name)
    (tmp_path / "claim").mkdir()
    return tmp_path / "models"


def fill(image_models: Path, **environ: str) -> set[str]:
    """Run the init container's command; returns the files in the claim afterwards."""
    claim = image_models.with_name("claim")
    script = filler("cpu")["args"][0].replace("/claim", str(claim)).replace("/models", str(image_models))
    done = subprocess.run(
        [*filler("cpu")["command"], script], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(claim)) for path in claim.rglob("*") if path.is_file() or path.name.startswith(".")}


OURS = {"facades/2/manifest.json", "photos/5/manifest.json"}


@every_overlay
def test_a_new_claim_is_filled_by_the_servers_own_image_with_what_the_server_will_read(overlay: str) -> None:
    assert filler(overlay)["image"] == container(overlay)["image"]
    (claim,) = filler(overlay)["volumeMounts"]
    assert (claim["mountPath"], claim.get("readOnly", False)) == ("/claim", False)
    assert {"name": claim["name"], "mountPath": "/models", "readOnly": True} in container(overlay)["volumeMounts"]


def test_an_empty_claim_gets_the_images_models_and_nothing_else_stays(image_models: Path) -> None:
    (image_models.with_name("claim") / "lost+found").mkdir()  # which new file systems of some kinds contain
    assert fill(image_models) == OURS


def test_a_claim_that_has_a_model_is_left_as_it_is(image_models: Path) -> None:
    own = image_models.with_name("claim") / "mine" / "1"
    own.mkdir(parents=True)
    (own / "manifest.json").write_text("mine")
    assert fill(image_models) == {"mine/1/manifest.json"}


def test_a_replica_that_another_was_faster_than_starts_too_and_leaves_no_copy(
    image_models: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "bin" / "cp"
    slow.parent.mkdir()
    really = shutil.which("cp")
    slow.write_text(f'#!/bin/sh\n{really} "$@" && {really} -R {image_models}/. {image_models.with_name("claim")}\n')
    slow.chmod(0o755)
    assert fill(image_models, PATH=f"{slow.parent}:{os.environ['PATH']}") == OURS
