"""Request format of a model, from its manifest: file parts, text fields, and whether it can be served. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from engines.manifest import Manifest, TensorSpec
from service.core.schemas import OPTIONS, Taken, Takes
from service.imaging.several_results import is_diverse


def request_format(manifest: Manifest, *, texture: bool = True) -> Takes:
    """The endpoint, file parts and fields of a request for the model; `texture`: whether the server can copy it."""
    fields = OPTIONS[manifest.task].model_fields
    offered = {"seed": manifest.has_latent, "samples": is_diverse(manifest), "texture": texture}
    return Takes(
        endpoint=f"/v1/{manifest.task}",
        parts=list(_file_parts(manifest)),
        fields=[
            Taken(name=name, required=False, description=field.description or "")
            for name, field in fields.items()
            if offered.get(name, True)
        ],
        refused=why_not_servable(manifest),
    )


def why_not_servable(manifest: Manifest) -> str | None:
    """Return the reason why the model cannot be served; None if it can.

    Pictures are grey or RGB. Two output channels are accepted only as the a and b that belong to the lightness of the
    input, as the manifest declares it (docs/adr/0007-two-channels.md).
    """
    image, output = manifest.input("image"), manifest.output
    if image is not None and manifest.image_channels not in (1, 3):
        return f"{manifest.key} has {manifest.image_channels} input channels, neither grey (1) nor RGB (3)"
    if manifest.output_channels in (1, 3):
        return None
    if manifest.output_channels == 2 and output.colours == "ab" and image is not None and image.colours == "lightness":
        return None
    return (
        f"{manifest.key} has {manifest.output_channels} output channels, which are not a picture; two are supported if "
        "the manifest declares them as the `ab` of an image read as `lightness`"
    )


def _file_parts(manifest: Manifest) -> Iterator[Taken]:
    image, label = manifest.input("image"), manifest.input("label")
    if image is not None:
        yield Taken(name="image", required=True, description=_describe_picture(image))
    if label is not None:
        classes = f"class ids 0 to {label.classes - 1}" if label.classes else "class ids 0 to 255"
        yield Taken(name="image", required=True, description=f"{classes}: a grey or palette PNG")
    if manifest.task == "inpaint":
        yield Taken(name="mask", required=True, description="what to fill: JPEG, PNG or WebP of the image's size")
    if manifest.input("instance") is not None:
        description = "instance ids: a grey or palette PNG of the image's size"
        yield Taken(name="instance", required=True, description=description)
    if (reference := manifest.input("reference")) is not None:
        description = f"the picture whose style is used, of the image's size: {_describe_picture(reference)}"
        yield Taken(name="reference", required=True, description=description)


def _describe_picture(image: TensorSpec) -> str:
    kind = "RGB" if image.shape[1] == 3 else "read as grey"
    return f"JPEG, PNG or WebP, {kind}"
