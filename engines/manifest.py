"""manifest.json: the description of a model that the service relies on.

Written by `export`, read by `engines` and `service`, which share nothing else. The tensor contract:

    image     float32  N×C×H×W   [0, 1], RGB or the model's 1–3 channels
    mask      float32  N×1×H×W   1 = fill, 0 = keep
    latent    float32  N×Z       standard normal
    label     uint8    N×1×H×W   class ids, 0 … classes - 1
    instance  int32    N×1×H×W   instance ids, only compared with each other
    reference float32  N×C×H×W   [0, 1], a second picture, whose style is transferred
    output    float32  N×C×H×W   on the [0, 1] scale, neither clamped nor composited

A model that shares work between several samples of one picture takes `latent` N×S×Z and gives `output`
N×S×C×H×W; S is the symbolic dimension `samples`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engines.errors import ManifestInvalid
from engines.files.regular import read_regular, remedy_for
from engines.fill_rules import FillRules
from engines.validation import validation_message

MANIFEST_FILE = "manifest.json"
ONNX_FILE = "model.onnx"
CARD_FILE = "card.md"
MAX_SAMPLES = 8
"""The most latents per row for a model with the dimension `samples`, and so the most results of a request; engines are
built for up to this number."""
_MAX_SIDE = 8192
"""The largest side of a tile in pixels, and of any dimension of a tensor: one such tile has 800 MB in FP32."""
_MAX_BYTES = 2**20
"""The largest manifest in bytes; real ones have a few thousand."""

Task = Literal["inpaint", "translate", "generate"]
Precision = Literal["fp16", "fp32", "int8"]
Side = Annotated[int, Field(ge=1, le=_MAX_SIDE)]
Dimension = Literal["batch", "samples", "height", "width"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ModelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorSpec(_FrozenModel):
    """An input or the output of the graph; symbolic dimensions are `batch`, `samples`, `height` and `width`."""

    name: Literal["image", "mask", "latent", "label", "instance", "reference", "output"]
    dtype: Literal["float32", "uint8", "int32"]
    shape: tuple[Side | Dimension, ...]
    classes: int | None = Field(
        default=None, ge=1, le=256, description="of `label`: how many class ids there are; larger ids are refused"
    )
    colours: Literal["lightness", "ab"] | None = Field(
        default=None,
        description="what the channels mean where they are neither grey (1) nor RGB (3): CIELAB's L / 100, or its "
        "a and b / 220 + 0.5; null otherwise",
    )


class _InpaintingRules(_FrozenModel):
    max_hole_radius: int | None = Field(
        default=None,
        ge=16,
        description="inpainting: radius in tile pixels of the thickest hole that crops show; thicker ones are scaled "
        "down. Of strategy `crop`; strategy `auto` does so only where a rule says it",
    )
    padding: Literal["reflect", "symmetric"] = Field(
        default="reflect",
        description="inpainting: how a picture smaller than the tile is continued: `symmetric` repeats the pixel at "
        "the edge, `reflect` does not",
    )
    auto: FillRules | None = Field(
        default=None, description="inpainting: what strategy `auto` does, as `retouch sweep` measured it"
    )


class FixedSize(_InpaintingRules):
    """The graph accepts one tile size only."""

    kind: Literal["fixed"] = "fixed"
    height: Side
    width: Side
    fit: Literal["resize", "crop"] = "resize"
    hole: tuple[int, int, int, int] | None = Field(
        default=None,
        description="inpainting: the only part of the tile that the model fills (top, left, bottom, right; half "
        "open); crops are placed so that the hole's bounding box lies in it",
    )

    @model_validator(mode="after")
    def _check_hole(self) -> FixedSize:
        if self.hole is not None:
            top, left, bottom, right = self.hole
            if not (0 <= top < bottom <= self.height and 0 <= left < right <= self.width):
                raise ValueError(f"hole {self.hole} must lie inside the tile of {self.width}×{self.height}")
        return self

    def tile_sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the (height, width) pairs that the service sends."""
        yield self.height, self.width


class MultipleSize(_InpaintingRules):
    """The graph accepts any height and width that are multiples of `multiple_of`; the service sends those in `sides`.

    `fit` says how a whole image is fitted into a tile: padded (and scaled only if it is larger than the largest
    tile), or resized. Inpainting may crop around the holes instead: service/imaging/crops.py.
    """

    kind: Literal["multiple"] = "multiple"
    multiple_of: int = Field(ge=1)
    sides: tuple[Side, ...] = Field(
        min_length=1, max_length=64, description="ascending side lengths in pixels, each a multiple"
    )
    fit: Literal["pad", "resize"] = "pad"

    @model_validator(mode="after")
    def _check_sides(self) -> MultipleSize:
        if list(self.sides) != sorted(set(self.sides)) or any(s < 1 or s % self.multiple_of for s in self.sides):
            raise ValueError(f"sides {self.sides} must ascend and be positive multiples of {self.multiple_of}")
        return self

    def tile_sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the (height, width) pairs that the service sends."""
        yield from product(self.sides, self.sides)


SizeRule = Annotated[FixedSize | MultipleSize, Field(discriminator="kind")]


class ParityCase(_FrozenModel):
    """The comparison of one backend with torch in FP32 on one kind of input."""

    backend: str = Field(description="onnx-fp32, onnx-fp16, onnx (imported) or an engine's name and precision")
    inputs: str = Field(description="ordinary, empty, full, …")
    psnr_db: float | None = Field(description="peak 1.0, over the whole output; null when identical")
    max_abs: float = Field(ge=0, allow_inf_nan=False)
    finite: bool

    @property
    def levels(self) -> float:
        """The largest difference in grey levels of 255, the unit of `Parity.fill_levels`."""
        return 255 * self.max_abs

    @property
    def levels_kept(self) -> float:
        """The `fill_levels` that such a graph can promise: its `levels` rounded up to hundredths, none for bf16."""
        return math.ceil(round(100 * self.levels, 6)) / 100


class Parity(_FrozenModel):
    """The measurements of the export, taken before it published the model."""

    bar_db: float = Field(description="an engine whose outputs have a lower PSNR is refused")
    fill_levels: float | None = Field(
        default=None,
        ge=0,
        description="inpainting: grey levels of 255 by which a fill on a CPU may differ from torch's; null: no limit",
    )
    cases: tuple[ParityCase, ...]


class QuantisedLayer(_FrozenModel):
    """A layer of an INT8 model, by the name of its node."""

    name: str
    alone_db: float = Field(description="PSNR in the holes against FP32 when no other layer computes in INT8")


class QuantisationFigures(_FrozenModel):
    """The quality of INT8 fills, on pictures that were not used for calibration."""

    pictures: int
    engine: str = Field(description="engine that filled the holes, and its precision")
    psnr_db: float = Field(description="PSNR in the holes against FP32, mean of the pictures")
    worst_psnr_db: float
    lpips: float = Field(description="LPIPS to the truth, mean of the pictures")
    lpips_fp32: float


class Quantisation(_FrozenModel):
    """The making of an INT8 model, and the figures of its gate."""

    calibration: str = Field(description="name of the folder of pictures")
    calibration_sha256: Sha256 = Field(description="digest of the sorted digests of the calibration pictures")
    pictures: int = Field(description="number of calibration pictures; the layers were chosen on some of them")
    seed: int = Field(description="seed of the choice of pictures and of their holes")
    int8_layers: int
    kept: tuple[QuantisedLayer, ...] = Field(description="convolutions in higher precision, those that cost most first")
    gate: QuantisationFigures


class Manifest(_FrozenModel):
    """The content of manifest.json, schema 1."""

    schema_version: Literal[1] = Field(default=1, description="Version of this format.")
    name: ModelName = Field(description="Name of the model.")
    version: int = Field(ge=1, description="Number of the version; a higher one is newer.")
    task: Task = Field(description="What the model does: fill holes, translate an image, or generate one.")
    generator: str = Field(description="Family of the generator, such as `pix2pix`.")
    options: dict[str, str | int | float | bool] = Field(default_factory=dict, description="Options of the generator.")
    inputs: tuple[TensorSpec, ...] = Field(description="Inputs of the graph.")
    output: TensorSpec = Field(description="Output of the graph.")
    size: SizeRule = Field(description="Sizes of the tiles that the graph accepts.")
    max_batch: int = Field(ge=1, description="Largest number of samples in a batch.")
    precision: Precision = Field(description="Precision of the graph.")
    opset: int = Field(description="Version of the ONNX operators in the graph.")
    onnx_sha256: Sha256 = Field(description="SHA-256 of model.onnx.")
    checkpoint_sha256: Sha256 = Field(description="SHA-256 of what the graph was made from.")
    licence: str = Field(description="Licence of the weights.")
    training_data: str = Field(description="Data on which the weights were trained.")
    parity: Parity = Field(description="Comparison of the graph with the original net.")
    quality: dict[str, float] = Field(default_factory=dict, description="Figures of quality, by name.")
    quantisation: Quantisation | None = Field(default=None, description="How an INT8 model was made; otherwise null.")

    @model_validator(mode="after")
    def _check_quantisation(self) -> Manifest:
        if (self.precision == "int8") != (self.quantisation is not None):
            raise ValueError("`quantisation` belongs to precision int8: either both or neither")
        return self

    @model_validator(mode="after")
    def _check_samples(self) -> Manifest:
        if self.samples_together != ("samples" in self.output.shape):
            raise ValueError("either both `latent` and `output` have the dimension `samples`, or neither")
        return self

    @property
    def bf16_levels(self) -> float | None:
        """The part of `fill_levels` that is left for bf16 after the graph's own differences; None for no limit.

        INT8 graphs have no limit, because their gate measures them in the engine that serves them.
        """
        if self.parity.fill_levels is None or self.precision == "int8":
            return None
        graph = {f"onnx-{self.precision}", "onnx"}  # `onnx`: an imported graph, compared with the file's own
        own = [case.levels for case in self.parity.cases if case.backend in graph]
        return max(0.0, self.parity.fill_levels - max(own, default=0.0))

    @property
    def key(self) -> str:
        """The model's name and version, `name/version`, as in the X-Model header."""
        return f"{self.name}/{self.version}"

    def input(self, name: str) -> TensorSpec | None:
        """Return the input of that name, or None if the model has none."""
        for spec in self.inputs:
            if spec.name == name:
                return spec
        return None

    @property
    def image_channels(self) -> int:
        """The number of channels of the `image` input; 0 if the model has none."""
        spec = self.input("image")
        return int(spec.shape[1]) if spec else 0

    @property
    def output_channels(self) -> int:
        """The number of channels of the output."""
        return int(self.output.shape[-3])

    @property
    def has_latent(self) -> bool:
        """Whether the model has a latent input, so that its output depends on the seed."""
        return self.input("latent") is not None

    @property
    def samples_together(self) -> bool:
        """Whether the model accepts several latents for each row of a batch."""
        latent = self.input("latent")
        return latent is not None and "samples" in latent.shape


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a model's version directory.

    Raises:
        ManifestInvalid: the file is missing, not a regular file, malformed or of an unknown schema; the message names
            the field.
    """
    path = directory / MANIFEST_FILE
    try:
        return Manifest.model_validate_json(read_regular(path, _MAX_BYTES))
    except OSError as error:
        to_do = remedy_for(error, "export the model again")
        raise ManifestInvalid(f"{path}: cannot be read ({error.strerror}); {to_do}") from error
    except ValidationError as error:
        raise ManifestInvalid(f"{path}: {validation_message(error, 'field', Manifest.model_fields)}") from error
