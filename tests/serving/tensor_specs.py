"""Short builders of manifests' inputs and outputs for tests."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
PIXELS = ["height", "width"]


def image(channels: int = 3, **fields: Any) -> Spec:
    return {"name": "image", "dtype": "float32", "shape": ["batch", channels, *PIXELS], **fields}


def mask() -> Spec:
    return {"name": "mask", "dtype": "float32", "shape": ["batch", 1, *PIXELS]}


def latent(length: int = 6, *, together: bool = False) -> Spec:
    return {"name": "latent", "dtype": "float32", "shape": ["batch", *(["samples"] if together else []), length]}


def label(classes: int | None = None) -> Spec:
    return {"name": "label", "dtype": "uint8", "shape": ["batch", 1, *PIXELS], "classes": classes}


def instance() -> Spec:
    return {"name": "instance", "dtype": "int32", "shape": ["batch", 1, *PIXELS]}


def output(channels: int = 3, *, together: bool = False, **fields: Any) -> Spec:
    shape = ["batch", *(["samples"] if together else []), channels, *PIXELS]
    return {"name": "output", "dtype": "float32", "shape": shape, **fields}


def reference(channels: int = 3) -> Spec:
    return {"name": "reference", "dtype": "float32", "shape": ["batch", channels, *PIXELS]}
