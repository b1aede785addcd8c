"""Every family from its reference checkpoint to HTTP: the PNG is what the public implementation gave.

The service gives models 8 bits. Where the reference's input has more and its random weights amplify half a level beyond
one, the PNG is held to the public net in torch on the rounded input, and that net to the reference on the exact one.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import MANIFEST_FILE, ONNX_FILE, Manifest, MultipleSize
from engines.onnxrt import OnnxRuntimeEngine
from service.imaging.postprocess import FEATHER
from tests.serving.image_files import png

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
from export.checkpoint import load_strictly, read_checkpoint, sha256_of  # noqa: E402 -- need torch
from export.onnx_graph import OPSET, write_graph  # noqa: E402
from export.recognition import recognise  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
Serve = Callable[..., Any]


def shared(name: str) -> Path:
    path = (ROOT / "../shared" / name).resolve()
    if not path.is_file():
        pytest.skip(f"needs ../shared/{name}, which is not part of the repository")
    return path


@dataclass(frozen=True)
class Exported:
    """A published model, and the public net behind the tensor contract."""

    name: str
    manifest: Manifest
    reference: Callable[..., NDArray[Any]]


@pytest.fixture
def exported(models_dir: Path) -> Callable[..., Exported]:
    """Puts a checkpoint's FP32 graph and manifest into the repository."""

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
    """Opens a model of the repository; the fakes that it holds otherwise are left out."""
    for fake in ("photos", "facades"):
        (models_dir / fake / "1" / MANIFEST_FILE).unlink()
        (models_dir / fake / "1").rmdir()
        (models_dir / fake).rmdir()
    return lambda manifest: OnnxRuntimeEngine(models_dir / manifest.name / "1", manifest, threads=2)


def golden(name: str) -> Mapping[str, NDArray[Any]]:
    with np.load(shared(f"golden/{name}.npz")) as arrays:
        return dict(arrays)


def levels(output: NDArray[Any]) -> NDArray[Any]:
    """C×H×W on [0, 1] as H×W×C on 0..255, clamped, not rounded."""
    return np.clip(output, 0, 1).transpose(1, 2, 0) * 255


def rounded(image: NDArray[Any]) -> NDArray[np.float32]:
    """Round to the values that bytes can express."""
    return (np.rint(image * 255) / 255).astype(np.float32)


def as_png(image: NDArray[Any]) -> bytes:
    """C×H×W on [0, 1]."""
    return png(np.rint(levels(image)).astype(np.uint8))


def mask_png(mask: NDArray[Any]) -> bytes:
    """H×W, 1 = fill."""
    return png((mask[:, :, None] * 255).astype(np.uint8))


def opened(body: bytes) -> NDArray[Any]:
    return np.atleast_3d(np.asarray(Image.open(io.BytesIO(body)))).astype(int)


def asked(client: httpx.Client, task: str, files: Mapping[str, bytes], **fields: object) -> httpx.Response:
    texts = {name: (None, str(value)) for name, value in {"model": "golden", **fields}.items()}
    reply = client.post(f"/v1/{task}", files={**files, **texts})
    assert reply.status_code == 200, reply.text
    return reply


def beyond_the_seam(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """The pixels of a mask whose fill is the model's alone."""
    distance = cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 5)
    return np.asarray(distance > FEATHER + 1)


@pytest.mark.parametrize("name", ["pix2pix_unet_256_batch_tiny", "pix2pix_resnet_9blocks_instance_tiny"])
def test_pix2pix(name: str, serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, model = golden(name), exported(f"golden/{name}.pth")
    image, output = (arrays["image"] + 1) / 2, (arrays["output"] + 1) / 2
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "translate", {"image": as_png(image[0])}).content)
    assert np.abs(model.reference(image) - output).max() < 1e-4
    assert np.abs(found - levels(model.reference(rounded(image))[0])).max() <= 1
    if "unet" in name:  # nine random blocks make up to ten levels of half a level of input
        assert np.abs(found - levels(output[0])).max() <= 1


@pytest.mark.parametrize("name", ["pix2pixhd_global_tiny", "pix2pixhd_local_tiny"])
def test_pix2pixhd(name: str, serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays = golden(name)
    model = exported(f"golden/{name}.pth", sides=(128, 256))
    files = {
        "image": png(arrays["label"][0].transpose(1, 2, 0).astype(np.uint8)),
        "instance": png(arrays["inst"][0].transpose(1, 2, 0).astype(np.uint16)),
    }
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "translate", files).content)
        (told,) = client.get("/v1/models").json()["models"]
    assert np.abs(found - levels((arrays["output"][0] + 1) / 2)).max() <= 1
    assert model.manifest.generator == told["manifest"]["generator"]
    assert told["takes"]["parts"][0]["description"].startswith("class ids 0 to 34")


def test_pgn(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, model = golden("pgn_four_tiny"), exported("golden/pgn_four_tiny.pth")
    mask = np.zeros((1, 1, 128, 128), np.float32)
    mask[..., 32:96, 32:96] = 1
    inner = beyond_the_seam(mask[0, 0])
    with serve(onnxrt).client() as client:
        for full, output in zip(arrays["image_full"], arrays["output"], strict=True):
            files = {"image": as_png(full), "mask": mask_png(mask[0, 0])}
            found = opened(asked(client, "inpaint", files).content)
            assert np.abs(model.reference(full[None], mask)[0] - output).max() < 1e-4
            # four chained random nets make up to 18 levels of half a level of input
            wanted = levels(model.reference(rounded(full[None]), mask)[0])
            assert np.abs(found - wanted)[inner].max() <= 1
            np.testing.assert_array_equal(found[mask[0, 0] == 0], np.rint(levels(full))[mask[0, 0] == 0])


def test_pgn_fills_holes_anywhere(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    exported("golden/pgn_four_tiny.pth")
    photo = cv2.cvtColor(cv2.imread(str(ROOT / "tests/data/dress.jpg")), cv2.COLOR_BGR2RGB)
    mask = np.zeros(photo.shape[:2], np.float32)
    mask[:30, :50], mask[100:230, 60:90], mask[-5:, -3:] = 1, 1, 1
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", {"image": png(photo), "mask": mask_png(mask)}).content)
    np.testing.assert_array_equal(found[mask == 0], photo[mask == 0])
    assert (found != photo).any(axis=2)[mask == 1].mean() > 0.9


def test_pdgan(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, _ = golden("pdgan_ones_tiny"), exported("golden/pdgan_ones_tiny.pth")
    mask = arrays["hole_mask"][0, 0]
    files = {"image": as_png((arrays["image"][0] + 1) / 2), "mask": mask_png(mask)}
    running = serve(onnxrt)
    pipeline, drawn = running.service.pipeline, running.service.pipeline.draw
    with running.client() as client:
        pipeline.draw = lambda _seed, index, _length: arrays["z2" if index else "z"][0]
        images = asked(client, "inpaint", files, samples=2).json()["images"]
        pipeline.draw = drawn
        one, same, other = (asked(client, "inpaint", files, seed=seed).content for seed in (1, 1, 2))
    for image, name in zip(images, ("output", "output_z2"), strict=True):
        found = opened(base64.b64decode(image["image_base64"]))
        wanted = levels((arrays[name][0] + 1) / 2)
        assert np.abs(found - wanted)[beyond_the_seam(mask)].max() <= 1
    assert one == same
    assert (opened(one) != opened(other)).any(axis=2)[mask == 1].mean() > 0.1


def test_dcgan(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays, _ = golden("dcgan_64_tiny"), exported("golden/dcgan_64_tiny.pth")
    running = serve(onnxrt, generate_model="golden")
    pipeline, drawn = running.service.pipeline, running.service.pipeline.draw
    with running.client() as client:
        pipeline.draw = lambda _seed, index, _length: arrays["z"][index, :, 0, 0]
        images = asked(client, "generate", {}, count=4).json()["images"]
        pipeline.draw = drawn
        one, same, other = (asked(client, "generate", {}, seed=seed).content for seed in (1, 1, 2))
    for image, output in zip(images, arrays["output"], strict=True):
        assert np.abs(opened(base64.b64decode(image["image_base64"])) - levels((output + 1) / 2)).max() <= 1
    assert one == same
    assert np.abs(opened(one) - opened(other)).max() > 10


def test_partial_convolution(serve: Serve, exported: Callable[..., Exported], onnxrt: Any) -> None:
    arrays = golden("pconv_photos")
    exported("checkpoints/pconv_photos.pth", sides=(256,))
    mask = arrays["mask"][0, 0]
    files = {"image": as_png(arrays["image"][0]), "mask": mask_png(mask)}
    with serve(onnxrt).client() as client:
        found = opened(asked(client, "inpaint", files, strategy="whole").content)
    inner = beyond_the_seam(mask)
    assert inner.any()
    assert np.abs(found - levels(arrays["output"][0]))[inner].max() <= 1
    np.testing.assert_array_equal(found[mask == 0], np.rint(levels(arrays["image"][0]))[mask == 0])
