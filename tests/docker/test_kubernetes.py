"""The kustomization is what Kubernetes' own schema allows, and promises what compose.yaml promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.core.settings import SettingsInvalid, load_settings
from service.lifecycle.drain import FLUSH_AT_LEAST_S
from service.telemetry.metrics import Metrics
from tests.docker.compose_file import DOCKER

pytestmark = pytest.mark.slow

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


def filler() -> dict[str, Any]:
    """The init container that fills a claim which has no models."""
    (found,) = only("Deployment")["spec"]["template"]["spec"]["initContainers"]
    assert isinstance(found, dict)
    return found


def labelled() -> list[dict[str, Any]]:
    """Return the objects that `kubectl kustomize` makes of the folder."""
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


@pytest.mark.parametrize("kind", sorted({one["kind"] for one in RESOURCES if "template" in one.get("spec", {})}))
def test_a_services_own_variables_are_kept_from_pods_whose_settings_they_would_be(kind: str) -> None:
    service = only("Service")["metadata"]["name"].upper()
    with pytest.raises(SettingsInvalid, match="enableServiceLinks"):
        load_settings(environ={f"{service}_SERVICE_HOST": "10.0.0.1", f"{service}_PORT": "tcp://10.0.0.1:80"})
    assert only(kind)["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_containers_are_confined_and_write_only_to_volumes() -> None:
    for confined in (container(), filler()):
        security = confined["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(confined["resources"])
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


@pytest.fixture
def image_models(tmp_path: Path) -> Path:
    """Stands for the image's own /models; beside it lies an empty `claim`."""
    for name in ("facades/2", "photos/5"):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(name)
    (tmp_path / "claim").mkdir()
    return tmp_path / "models"


def fill(image_models: Path, **environ: str) -> set[str]:
    """Run the init container's own command; the files that the claim holds then."""
    claim = image_models.with_name("claim")
    script = filler()["args"][0].replace("/claim", str(claim)).replace("/models", str(image_models))
    done = subprocess.run(
        [*filler()["command"], script], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(claim)) for path in claim.rglob("*") if path.is_file() or path.name.startswith(".")}


OURS = {"facades/2/manifest.json", "photos/5/manifest.json"}


def test_a_new_claim_is_filled_by_the_servers_own_image_with_what_the_server_will_read() -> None:
    (made,) = (resource for resource in labelled() if resource["kind"] == "Deployment")
    pod = made["spec"]["template"]["spec"]
    assert pod["initContainers"][0]["image"] == pod["containers"][0]["image"]
    (claim,) = filler()["volumeMounts"]
    assert (claim["mountPath"], claim.get("readOnly", False)) == ("/claim", False)
    assert {"name": claim["name"], "mountPath": "/models", "readOnly": True} in container()["volumeMounts"]


def test_an_empty_claim_gets_the_images_models_and_nothing_else_stays(image_models: Path) -> None:
    (image_models.with_name("claim") / "lost+found").mkdir()  # as some file systems begin
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
