"""The options of a PD-GAN run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from export.generators.pdgan.diverse import SIDE
from export.generators.pdgan.generator import PDGANOptions
from training.judge_config import ProjectedJudgeConfig
from training.run_config import FitConfig, PhaseConfig, check_coverage, refuse_pairs


class PDGANPhase(PhaseConfig):
    """A phase of PD-GAN: which of its nets learns, and the weights of the losses (one of weight 0 is not computed)."""

    part: Literal["prior", "diverse"] = Field(
        "diverse", description="stage 1, or the SPDNorm generator on what stage 1 then is"
    )
    hole: float = Field(6.0, ge=0, description="prior: mean |difference| inside the hole, [-1, 1] scale")
    valid: float = Field(1.0, ge=0, description="prior: mean |difference| outside")
    perceptual: float = Field(0.0, ge=0, description="both: mean |difference| of VGG16's features; public code 10")
    adversarial: float = Field(1.0, gt=0, description="diverse: hinge loss of the discriminators")
    matching: float = Field(10.0, ge=0, description="diverse: mean |difference| of the discriminators' features")
    diversity: float = Field(1.0, ge=0, description="diverse: one over the difference of two fills of a hole")
    total_variation: float = Field(0.1, ge=0, description="diverse: mean |difference| of neighbours in the hole")
    projected: float = Field(0.0, ge=0, description="diverse: loss of the discriminator on VGG16's features")
    l1: float = Field(0.0, ge=0, description="diverse: mean |difference| inside the hole; not in the paper")


class PDGANConfig(FitConfig):
    """The options of PD-GAN (Liu et al. 2021)."""

    model: Literal["pdgan"]
    generator: PDGANOptions = Field(default_factory=lambda: PDGANOptions.model_validate({}))
    betas: tuple[float, float] = Field((0.0, 0.9), description="of Adam")
    coverage: tuple[float, float] = Field((0.1, 0.5), description="smallest and largest part of a crop in the hole")
    discriminator_width: int = Field(64, ge=1, le=512, description="channels of each discriminator's first layer")
    discriminator_layers: int = Field(4, ge=1, le=6, description="layers of each")
    discriminators: int = Field(2, ge=1, le=4, description="scales with a discriminator; each is half the previous")
    discriminator_rate: float = Field(4.0, gt=0, description="their learning rate, in parts of the generator's")
    features: Path | None = Field(None, description="VGG16 features.0 to .14 or deeper (safetensors)")
    projected: ProjectedJudgeConfig | None = Field(
        None,
        description="a discriminator on VGG16's features, if a phase's projected is not 0; its R1 is in every step",
    )
    phase: list[PDGANPhase] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> PDGANConfig:
        check_coverage("coverage", self.coverage)
        if self.data.crop != SIDE:
            raise ValueError(f"data.crop {self.data.crop}: nets of this family take {SIDE} and nothing else")
        refuse_pairs(self.data.layout)
        if self.generator.diverse and self.generator.ngf == 1:
            raise ValueError("generator.ngf 1: its last norm would have the variance of one channel; use 2 or more")
        if self.features is None and any(phase.perceptual for phase in self.phase):
            raise ValueError("perceptual needs VGG16: give the file's path as features = …, or set it to 0")
        if (self.projected is not None) != any(phase.projected for phase in self.phase if phase.part == "diverse"):
            raise ValueError("projected: it needs both a section and a diverse phase whose projected is not 0")
        if self.projected is not None and (self.features is None or self.projected.penalty_every != 1):
            raise ValueError("projected: give VGG16's path as features = …, and set projected.penalty_every = 1")
        return self

    @model_validator(mode="after")
    def _check_parts(self) -> PDGANConfig:
        if not self.generator.diverse and any(phase.part == "diverse" for phase in self.phase):
            raise ValueError("phase.part: without generator.diverse there is stage 1 alone; set part = 'prior'")
        parts = [phase.part for phase in self.phase]
        if "prior" in parts[parts.index("diverse") :] if "diverse" in parts else False:
            raise ValueError("phase.part: the generator learns on what stage 1 is at its end; put 'prior' first")
        if self.generator.diverse and parts[-1] == "prior":
            raise ValueError("phase.part: no phase trains the generator; add one, or set generator.diverse = false")
        return self
