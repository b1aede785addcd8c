"""The options of a pix2pixHD run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from export.generators.pix2pixhd.options import Pix2PixHDOptions
from training.run_config import FitConfig, PhaseConfig

_CLASSES = {"facades": 13, "cityscapes": 35, "ade20k": 151}
"""Number of classes of each data set, including that of pixels without a class; for Cityscapes as upstream counts."""


class Pix2PixHDPhase(PhaseConfig):
    """A phase of pix2pixHD: what it trains, and the weights of its losses (a loss of weight 0 is not computed)."""

    part: Literal["global", "local", "both"] = Field(
        "both", description="of a local net: the global part alone, on smaller pictures; the enhancers alone; both"
    )
    adversarial: float = Field(1.0, gt=0, description="the discriminators' loss, least squares")
    matching: float = Field(10.0, ge=0, description="mean |difference| of the discriminators' features")
    perceptual: float = Field(0.0, ge=0, description="mean |difference| of VGG16's features, deep ones weigh more")
    l1: float = Field(0.0, ge=0, description="mean |difference| on the [-1, 1] scale; not in the paper")


class Pix2PixHDConfig(FitConfig):
    """The options of pix2pixHD (Wang et al. 2018) on label maps."""

    model: Literal["pix2pixhd"]
    generator: Pix2PixHDOptions = Field(default_factory=lambda: Pix2PixHDOptions.model_validate({}))
    betas: tuple[float, float] = Field((0.5, 0.999), description="of Adam")
    discriminator_width: int = Field(64, ge=1, le=512, description="channels of each discriminator's first layer")
    discriminator_layers: int = Field(3, ge=1, le=6, description="3: each score sees 70×70 pixels of its scale")
    discriminators: int = Field(2, ge=1, le=4, description="scales with a discriminator; each is half the previous")
    features: Path | None = Field(None, description="VGG16 features.0 to .14 or deeper (safetensors), for perceptual")
    phase: list[Pix2PixHDPhase] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> Pix2PixHDConfig:
        generator, multiple = self.generator, self.generator.multiple_of
        classes = _CLASSES.get(self.data.layout)
        if classes is None:
            raise ValueError(f"pix2pixhd trains on label maps: data.layout is one of {', '.join(_CLASSES)}")
        if (generator.label_nc, generator.out_channels) != (classes, 3):
            raise ValueError(f"data.layout {self.data.layout}: generator.label_nc is {classes} and out_channels 3")
        _refuse_untrained(generator)
        if self.data.scale != (1.0, 1.0):
            raise ValueError("data.scale: ids cannot be interpolated; leave it out, and vary load_side")
        if self.data.crop % multiple:
            raise ValueError(f"data.crop {self.data.crop} is not a multiple of {multiple}, as the generator needs")
        if generator.net == "global" and any(phase.part != "both" for phase in self.phase):
            raise ValueError("phase.part: a global net has no parts; leave it out, or set generator.net = 'local'")
        if self.features is None and any(phase.perceptual for phase in self.phase):
            raise ValueError("perceptual needs VGG16: give the file's path as features = …, or set it to 0")
        return self


def _refuse_untrained(generator: Pix2PixHDOptions) -> None:
    if generator.clusters:
        raise ValueError("generator.clusters: `training cluster` makes them after training; leave it out")
    if generator.features and generator.features_of == "label":
        raise ValueError("generator.features_of: features are trained by instance; leave it out")
