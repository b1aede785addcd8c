"""A model's inputs follow from its manifest alone; the service knows no generator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.manifest import Manifest
from service.imaging.model_inputs import request_format, why_not_servable
from tests.serving.tensor_specs import image, instance, label, latent, mask, output

MakeManifest = Callable[..., Manifest]
ROOT = Path(__file__).resolve().parents[3]
COMMON = ["model", "format", "quality", "save", "webhook", "webhook_events"]


def described(manifest: Manifest) -> tuple[str, list[str], list[str]]:
    found = request_format(manifest)
    assert found.refused is None
    return found.endpoint, [part.name for part in found.parts], [field.name for field in found.fields]


def test_inpainting_needs_a_mask_and_accepts_samples_and_for_models_with_latents_a_seed(
    fake_manifest: MakeManifest,
) -> None:
    fields = [*COMMON, "mask_mode", "mask_resize", "strategy", "texture", "samples"]
    assert described(fake_manifest("m", "inpaint")) == ("/v1/inpaint", ["image", "mask"], fields)
    diverse = fake_manifest("m", "inpaint", inputs=[image(), mask(), latent()])
    assert described(diverse) == ("/v1/inpaint", ["image", "mask"], [*fields, "seed"])
    maskless = fake_manifest("m", "inpaint", inputs=[image()])
    assert described(maskless)[1] == ["image", "mask"], "the service needs it, whether the graph does or not"


def test_texture_is_listed_only_where_the_server_can_copy_it(fake_manifest: MakeManifest) -> None:
    manifest = fake_manifest("m", "inpaint")
    names = [[field.name for field in request_format(manifest, texture=can).fields] for can in (True, False)]
    assert set(names[0]) - set(names[1]) == {"texture"}


def test_translation_accepts_the_inputs_of_the_graph(fake_manifest: MakeManifest) -> None:
    assert described(fake_manifest("m", "translate"))[:2] == ("/v1/translate", ["image"])
    found = request_format(fake_manifest("m", "translate", inputs=[label(35), instance()]))
    assert [(part.name, part.required) for part in found.parts] == [("image", True), ("instance", True)]
    assert found.parts[0].description == "class ids 0 to 34: a grey or palette PNG"
    assert found.parts[1].description == "instance ids: a grey or palette PNG of the image's size"
    styled = fake_manifest("m", "translate", inputs=[label(35), instance(), latent()])
    assert described(styled) == ("/v1/translate", ["image", "instance"], [*COMMON, "samples", "seed"])
    grey = request_format(fake_manifest("m", "translate", inputs=[image(1)], output=output(1)))
    assert grey.parts[0].description == "JPEG, PNG or WebP, read as grey"
    assert "0 to 255" in request_format(fake_manifest("m", "translate", inputs=[label()])).parts[0].description


def test_generation_accepts_no_files(fake_manifest: MakeManifest) -> None:
    manifest = fake_manifest("m", "generate", inputs=[latent()])
    assert described(manifest) == ("/v1/generate", [], [*COMMON, "count", "seed"])


def test_two_channels_are_a_picture_only_with_the_lightness_that_they_colour(fake_manifest: MakeManifest) -> None:
    def reason(**fields: object) -> str:
        return why_not_servable(fake_manifest("m", "translate", **fields)) or ""

    assert "has 2 output channels, which are not a picture" in reason(inputs=[image(1)], output=output(2))
    assert "has 2 output channels" in reason(inputs=[image(1)], output=output(2, colours="ab"))
    assert reason(inputs=[image(1, colours="lightness")], output=output(2, colours="ab")) == ""
    assert "has 2 input channels" in reason(inputs=[image(2)], output=output(3))
    assert "has 4 output channels" in reason(output=output(4))


@pytest.mark.parametrize("path", sorted((ROOT / "service").rglob("*.py")), ids=lambda path: path.name)
def test_nothing_in_the_service_names_a_generator(path: Path) -> None:
    families = {file.stem for file in (ROOT / "export" / "generators").iterdir()} - {
        "__init__",
        "__pycache__",
        "family",
    }
    assert len(families) >= 2
    names = {*families, *(name.split("_")[0] for name in families), "cyclegan", "partial.?conv"}
    found = re.findall("|".join(rf"\b{name}\b" for name in sorted(names)), path.read_text("utf-8"), re.IGNORECASE)
    assert not found
