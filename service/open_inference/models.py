"""Descriptions of models: metadata, configuration, repository index and statistics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from engines.manifest import Manifest
from engines.repository.versions import ModelStatus
from service.core.errors import NotFound
from service.imaging.model_inputs import request_format
from service.open_inference.requests import OUTPUT
from service.telemetry.redaction import without_folders

_NO_DURATION = {"count": 0, "ns": 0}
_REQUESTS = "retouch_request_duration_seconds"
_LAST_BATCH = "retouch_last_batch_timestamp_seconds"
_FAILED = "failed "
"""Added before the names of samples of failed requests; no name of a metric has a space."""


def find_status(statuses: Sequence[ModelStatus], name: str, version: str = "") -> ModelStatus:
    """Return the status of a model's version; without `version`, of the newest that is not refused, if there is one.

    Raises:
        NotFound: there is no such model or version.
    """
    named = [one for one in statuses if one.name == name and (not version or str(one.version) == version)]
    usable = [one for one in named if one.state != "refused"] or named
    if not usable:
        there = ", ".join(sorted(f"{one.name}/{one.version}" for one in statuses if one.state != "refused"))
        wanted = "/".join(filter(None, (name, version)))[:80]
        raise NotFound(f"no model {wanted!r}; available: {there or 'none'}", code="model_not_found")
    return max(usable, key=lambda one: one.version)


def server_metadata(*extensions: str) -> dict[str, Any]:
    """Return the metadata of the server; `extensions`: protocol extensions that only the caller's transport has."""
    both = ["model_configuration", "statistics"]
    return {"name": "retouch", "version": version("retouch"), "extensions": [*extensions, *both]}


def inputs_of(manifest: Manifest) -> dict[str, bool]:
    """Return the names of a model's inputs, and whether each is required."""
    return {part.name: part.required for part in request_format(manifest).parts}


def metadata(status: ModelStatus, statuses: Sequence[ModelStatus]) -> dict[str, Any]:
    """Return the metadata of a model."""
    return {
        "name": status.name,
        "versions": sorted(str(one.version) for one in statuses if one.name == status.name),
        "platform": "retouch",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [1]} for name in _inputs(status)],
        "outputs": [{"name": OUTPUT, "datatype": "BYTES", "shape": [1]}],
    }


def config(status: ModelStatus) -> dict[str, Any]:
    """Return the configuration of a model; its batch size is 0, as the server forms batches itself."""
    return {
        "name": status.name,
        "platform": "retouch",
        "backend": "retouch",
        "max_batch_size": 0,
        "input": [{"name": name, "data_type": "TYPE_STRING", "dims": [1]} for name in _inputs(status)],
        "output": [{"name": OUTPUT, "data_type": "TYPE_STRING", "dims": [1]}],
        "parameters": {},
    }


def index(statuses: Sequence[ModelStatus], *, ready: bool) -> list[dict[str, str]]:
    """Return every version and its state; with `ready`, only versions that are not refused."""
    return [
        {
            "name": one.name,
            "version": str(one.version),
            "state": "UNAVAILABLE" if one.state == "refused" else "READY",
            "reason": without_folders(one.reason) if one.state == "refused" else "",
        }
        for one in statuses
        if not ready or one.state != "refused"
    ]


def statistics(exposition: bytes, statuses: Sequence[ModelStatus]) -> dict[str, Any]:
    """Return statistics of models over all of the server's APIs; `exposition`: its metrics in Prometheus's format.

    A request whose client left (499) counts as failed: Triton's aggregator does so for its reason `CANCELED`.
    """
    series = _by_model(exposition.decode("utf-8"))
    return {"model_stats": [_statistics(one, series[f"{one.name}/{one.version}"]) for one in statuses]}


def _statistics(status: ModelStatus, values: Mapping[str, float]) -> dict[str, Any]:
    answered = _timed(values, _REQUESTS)
    batches = _timed(values, "retouch_batch_duration_seconds")
    return {
        "name": status.name,
        "version": str(status.version),
        "last_inference": int(values.get(_LAST_BATCH, 0) * 1e3),
        "inference_count": answered["count"],
        "execution_count": batches["count"],
        "inference_stats": {
            "success": answered,
            "fail": _timed(values, _FAILED + _REQUESTS),
            "compute_infer": batches,
            **dict.fromkeys(("queue", "compute_input", "compute_output"), _NO_DURATION),
        },
        "batch_stats": [],
    }


def _timed(values: Mapping[str, float], name: str) -> dict[str, int]:
    return {"count": int(values.get(f"{name}_count", 0)), "ns": int(values.get(f"{name}_sum", 0) * 1e9)}


def _by_model(exposition: str) -> defaultdict[str, defaultdict[str, float]]:
    """Return the sums of all samples by model and by name of the sample; failed requests have names of their own."""
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if "model" in sample.labels:
                failed = "" if sample.labels.get("code", "200") == "200" else _FAILED
                sums[sample.labels["model"]][failed + sample.name] += sample.value
    return sums


def _inputs(status: ModelStatus) -> list[str]:
    if status.manifest is None:
        return []
    return [name for name, required in inputs_of(status.manifest).items() if required]
