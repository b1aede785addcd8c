"""Models for the fake engine: manifests without graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.manifest import MANIFEST_FILE, Manifest


def fake_manifest(name: str, task: str, **fields: Any) -> Manifest:
    """Return a manifest for the fake engine; keyword arguments replace fields.

    Args:
        name: the model's name.
        task: decides the inputs: an image, an image and a mask, or latents of 8 numbers.
        fields: fields of the manifest that replace the defaults.
    """
    pixels = ["batch", 3, "height", "width"]
    inputs: list[dict[str, Any]] = [{"name": "image", "dtype": "float32", "shape": pixels}]
    if task == "inpaint":
        inputs.append({"name": "mask", "dtype": "float32", "shape": ["batch", 1, "height", "width"]})
    if task == "generate":
        inputs = [{"name": "latent", "dtype": "float32", "shape": ["batch", 8]}]
    values: dict[str, Any] = {
        "name": name,
        "version": 1,
        "task": task,
        "generator": "fake",
        "inputs": inputs,
        "output": {"name": "output", "dtype": "float32", "shape": pixels},
        "size": {"kind": "multiple", "multiple_of": 32, "sides": [64, 128]},
        "max_batch": 8,
        "precision": "fp32",
        "opset": 17,
        "onnx_sha256": "0" * 64,
        "checkpoint_sha256": "0" * 64,
        "licence": "none",
        "training_data": "none",
        "parity": {"bar_db": 45.0, "cases": []},
    }
    return Manifest.model_validate({**values, **fields})


def write_model(root: Path, manifest: Manifest) -> Path:
    """Write a model to the repository and return its version directory."""
    directory = root / manifest.name / str(manifest.version)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
    return directory


def write_photos_and_facades(root: Path) -> Path:
    """Write a repository of `photos` (inpaint) and `facades` (translate, fixed 64²)."""
    write_model(root, fake_manifest("photos", "inpaint"))
    fixed = {"kind": "fixed", "height": 64, "width": 64, "fit": "resize"}
    write_model(root, fake_manifest("facades", "translate", size=fixed))
    return root


def write_photos_facades_and_faces(root: Path) -> Path:
    """Write the same and `faces` (generate, fixed 64²)."""
    fixed = {"kind": "fixed", "height": 64, "width": 64, "fit": "resize"}
    write_model(root, fake_manifest("faces", "generate", size=fixed))
    return write_photos_and_facades(root)
