"""Fixtures that export a checkpoint to the repository, and open it with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from engines.manifest import MANIFEST_FILE, ONNX_FILE, Manifest, MultipleSize
from engines.onnxrt import OnnxRuntimeEngine
from tests.service.requests.families.public_nets import Exported, shared

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
from export.checkpoint import load_strictly, read_checkpoint, sha256_of  # noqa: E402 -- need torch
from export.onnx_graph import OPSET, write_graph  # noqa: E402
from export.recognition import recognise  # noqa: E402


@pytest.fixture
def exported(models_dir: Path) -> Callable[..., Exported]:
    """Write a checkpoint's FP32 graph and manifest to the repository."""

    def export(checkpoint: str, *, sides: tuple[int, ...] | None = None) -> Exported:
        torch.set_num_threads(1)
        found = recognise(read_checkpoint(shared(checkpoint)).parts, None, {})
        interface = found.family.interface(found.options)
        if sides is not None:
            assert isinstance(interface.size, MultipleSize)
            interface = replace(interface, size=interface.size.model_copy(update={"sides": sides}))
        with torch.device("meta"):
            net = found.family.build(found.options)
        load_strictly(net, found.family.translate(found.state, found.options).state)
        directory = models_dir / "golden" / "1"
        directory.mkdir(parents=True)
        write_graph(found.family.lower(net, found.options), interface, directory / ONNX_FILE)
        manifest = Manifest.model_validate(
            {
                "name": "golden",
                "version": 1,
                "task": interface.task,
                "generator": found.family.name,
                "options": found.options.model_dump(),
                "inputs": interface.inputs,
                "output": interface.output,
                "size": interface.size,
                "max_batch": 8,
                "precision": "fp32",
                "opset": OPSET,
                "onnx_sha256": sha256_of(directory / ONNX_FILE),
                "checkpoint_sha256": "0" * 64,
                "licence": "none",
                "training_data": "none",
                "parity": {"bar_db": 45.0, "cases": []},
            }
        )
        (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
        wrapped = found.family.wrap(net, found.options).eval()

        def reference(*inputs: NDArray[Any]) -> NDArray[Any]:
            with torch.inference_mode():
                output: NDArray[Any] = wrapped(*map(torch.from_numpy, inputs)).numpy()
            return output

        return Exported("golden", manifest, reference)

    return export


@pytest.fixture
def onnxrt(models_dir: Path) -> Callable[[Manifest], OnnxRuntimeEngine]:
    """Open a model of the repository with ONNX Runtime; the repository's fake models are removed."""
    for fake in ("photos", "facades"):
        (models_dir / fake / "1" / MANIFEST_FILE).unlink()
        (models_dir / fake / "1").rmdir()
        (models_dir / fake).rmdir()
    return lambda manifest: OnnxRuntimeEngine(models_dir / manifest.name / "1", manifest, threads=2)
