"""The kustomization is what Kubernetes' own schema allows, and promises what compose.yaml promises."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_file import DOCKER

from service.drain import FLUSH_AT_LEAST_S
from service.metrics import Metrics
from service.settings import load_settings

FOLDER = DOCKER / "kubernetes"
LISTED = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
RESOURCES: list[dict[str, Any]] = [
    document for name in LISTED for document in yaml.safe_load_all((FOLDER / name).read_text())
]
VERSIONS = ("1.29", "1.34")


def only(kind: str) -> dict[str, Any]:
    (found,) = (resource for resource in RESOURCES if resource["kind"] == kind)
    return found


def container() -> dict[str, Any]:
    (found,) = only("Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def labelled() -> list[dict[str, Any]]:
    """What `kubectl kustomize` makes of it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here; the files are validated without what kustomize adds")
    done = subprocess.run([kubectl, "kustomize", FOLDER], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def test_every_file_is_listed() -> None:
    assert set(LISTED) | {"kustomization.yaml"} == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_kustomize_makes_fits_the_schema_strictly(version: str) -> None:
    made = labelled()
    assert len(made) == len(RESOURCES)
    for resource in made:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_would_be_noticed(version: str) -> None:
    wrong = {**only("PodDisruptionBudget"), "spec": {"maxUnavailabel": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_selectors_find_the_pods() -> None:
    made = {resource["kind"]: resource for resource in labelled()}
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["Service"]["spec"]["selector"] == labels
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels


def test_the_autoscaler_follows_a_series_that_the_server_has() -> None:
    (metric,) = only("HorizontalPodAutoscaler")["spec"]["metrics"]
    served = {family.name for family in Metrics().registry.collect()}
    assert metric["pods"]["metric"]["name"] in served


def test_its_settings_exist_and_it_is_given_more_time_to_end_than_it_takes() -> None:
    environ = {entry["name"]: entry["value"] for entry in container()["env"]}
    settings = load_settings(environ={name: value for name, value in environ.items() if name.startswith("RETOUCH_")})
    grace_s = only("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= settings.drain_delay_s + settings.drain_timeout_s + 2 + 2 * FLUSH_AT_LEAST_S
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"http": settings.port, "metrics": settings.metrics_port}


def test_the_container_is_confined_and_writes_only_to_volumes() -> None:
    security = container()["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    pod = only("Deployment")["spec"]["template"]["spec"]
    user = re.findall(r"USER (\d+):(\d+)", (DOCKER / "gpu.Dockerfile").read_text())
    assert {(str(pod["securityContext"]["runAsUser"]), str(pod["securityContext"]["runAsGroup"]))} == set(user)
    mounted = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    }
    assert claims == {claim["metadata"]["name"] for claim in RESOURCES if claim["kind"] == "PersistentVolumeClaim"}


def test_probes_ask_what_they_should() -> None:
    paths = {kind: container()[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/livez"}
