"""The options of an adversarial run of FillNet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from export.generators.fillnet.options import FillNetOptions
from training.judge_config import DiscriminatorConfig, ProjectedJudgeConfig
from training.run_config import ConfigSection, FitConfig, PhaseConfig, check_coverage, refuse_pairs

MAX_STRIDE = 32
"""Largest stride of the discriminator; the size of crops is a multiple of it."""
_CHANCE = 0.5
"""The accuracy of a judge that guesses."""


class SharesConfig(ConfigSection):
    """Each loss's share of the gradient at the picture, relative to the others; with 0 it is not computed."""

    difference: float = Field(1.0, gt=0, description="mean |difference| in the hole")
    perceptual: float = Field(1.5, ge=0, description="distance of VGG16's features, scaled to length 1, in two views")
    adversarial: float = Field(0.5, ge=0, description="the judge's loss on the hole")
    matching: float = Field(0.3, ge=0, description="mean |difference| of the judge's features")
    patches: float = Field(0.0, ge=0, description="the loss on the hole of the judge of small patches")
    projected: float = Field(0.0, ge=0, description="the loss on the hole of the judge on VGG16's features")


class PatchJudgeConfig(DiscriminatorConfig):
    """The discriminator of small patches, with its own optimiser and R1."""

    rate: float = Field(1.0, gt=0, description="its learning rate, as a fraction of the generator's")
    widths: tuple[int, int] = Field((32, 64), description="channels at 1/1 and 1/2")
    min_accuracy: float = Field(
        _CHANCE,
        ge=0,
        le=1,
        description="accuracy it must reach by the end of judge.alone; otherwise the run ends",
    )


class JudgeConfig(DiscriminatorConfig):
    """The discriminator of large patches; `ramp` and `alone` apply to all judges."""

    widths: tuple[int, ...] = Field((32, 64, 128, 256, 384, 384), description="channels at 1/1, 1/2, … 1/32")
    ramp: tuple[int, int] = Field((1000, 3500), description="steps between which adversarial losses grow to full share")
    alone: int = Field(
        0, ge=0, description="number of first steps in which only the judges learn; the net stays that of `initial`"
    )
    shift: int = Field(
        32, ge=1, description="it sees pictures rolled by a random number of pixels below this; 1: not rolled"
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> JudgeConfig:
        if len(self.widths) != 6 or min(self.widths) < 1:
            raise ValueError(f"judge.widths {self.widths}: six positive numbers")
        if not 0 <= self.ramp[0] < self.ramp[1]:
            raise ValueError(f"judge.ramp {self.ramp}: two numbers of steps, the smaller first")
        return self


class FillPhase(PhaseConfig):
    """A part of the run at one size of crops."""

    crop: int | None = Field(None, ge=MAX_STRIDE, description="side of crops here; left out: data.crop")
    crops: tuple[int, ...] = Field((), description="sides of crops, one for each step in turn; replaces crop")
    compile_after: Path | None = Field(
        None, description="steps are eager until this file exists, which is made when another process has compiled them"
    )

    def side(self, number: int, otherwise: int) -> int:
        """Return the side of the crops of a step."""
        return self.crops[number % len(self.crops)] if self.crops else self.crop or otherwise


class FillConfig(FitConfig):
    """The config of an adversarial run of FillNet with a patch discriminator."""

    model: Literal["fillnet"]
    generator: FillNetOptions = Field(default_factory=lambda: FillNetOptions.model_validate({}))
    betas: tuple[float, float] = Field((0.5, 0.99), description="of Adam")
    coverage: tuple[float, float] = Field((0.08, 0.75), description="smallest and largest part of a crop in the hole")
    thick: float = Field(
        0.0, ge=0, le=1, description="share of holes that are one box of 40-80 % of the crop, mostly at a border"
    )
    features: Path | None = Field(
        None, description="VGG16 features.0 to .14, .21 or .28 (safetensors, torchvision's names), for perceptual"
    )
    layers: tuple[float, ...] = Field(
        (0.5, 1.0, 1.5),
        min_length=3,
        max_length=5,
        description="weights of VGG16's blocks in perceptual: relu1_2, relu2_2, relu3_3, relu4_3, relu5_3",
    )
    capacity_gb: float | None = Field(
        None, gt=0, description="device memory for pictures, also of shards that arrive in data.path during the run"
    )
    shares: SharesConfig = Field(default_factory=lambda: SharesConfig.model_validate({}))
    judge: JudgeConfig = Field(default_factory=lambda: JudgeConfig.model_validate({}))
    patches: PatchJudgeConfig | None = Field(None, description="a judge of small patches, if shares.patches is not 0")
    stop_after: int | None = Field(
        None, ge=1, description="from this step on, the run ends if its figures are worse than those of `initial`"
    )
    projected: ProjectedJudgeConfig | None = Field(
        None, description="a judge on the features of VGG16, if shares.projected is not 0"
    )
    phase: list[FillPhase] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> FillConfig:
        check_coverage("coverage", self.coverage)
        multiple = math.lcm(self.generator.multiple, MAX_STRIDE)
        own = (side for phase in self.phase for side in (*phase.crops, phase.crop or self.data.crop))
        for crop in (self.data.crop, *own):
            if crop < multiple or crop % multiple:
                raise ValueError(f"crop {crop} is not a multiple of {multiple}")
        if self.features is None and self.shares.perceptual:
            raise ValueError("shares.perceptual needs VGG16: give the file's path as features = …, or set it to 0")
        if self.precision == "fp16":
            raise ValueError("precision fp16 is not for gradients at the picture; use bf16")
        refuse_pairs(self.data.layout)
        if self.capacity_gb and self.data.layout != "shards":
            raise ValueError("capacity_gb is for data.layout shards: other layouts are read once")
        return self

    @model_validator(mode="after")
    def _check_judges(self) -> FillConfig:
        for name, options in (("patches", self.patches), ("projected", self.projected)):
            if (options is None) != (getattr(self.shares, name) == 0):
                raise ValueError(f"shares.{name} and the section {name} need each other: give both, or neither")
        if self.projected and not self.shares.perceptual:
            raise ValueError("projected uses the features of shares.perceptual: that may not be 0")
        return self

    @model_validator(mode="after")
    def _check_start(self) -> FillConfig:
        """Refuse options that only make sense in a run that starts from another."""
        given = {"stop_after": self.stop_after, "judge.alone": self.judge.alone}
        if self.initial is None and (names := [name for name, value in given.items() if value]):
            raise ValueError(
                f"{', '.join(names)}: only for a run that starts from `initial`; give it, or leave them out"
            )
        if self.stop_after and (self.data.validation is None or not self.shares.perceptual):
            raise ValueError(
                "stop_after needs data.validation and VGG16's distance on it: set it and shares.perceptual"
            )
        if self.patches and self.patches.min_accuracy > _CHANCE and not self.judge.alone:
            raise ValueError(
                "patches.min_accuracy is measured while judge.alone lasts: set judge.alone, or leave it out"
            )
        return self
