"""The options of a DCGAN run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from export.generators.dcgan import DCGANOptions
from training.run_config import FitConfig, PhaseConfig


class DCGANConfig(FitConfig):
    """The options of a DCGAN (Radford et al. 2015): a generator and a discriminator, cross entropy."""

    model: Literal["dcgan"]
    generator: DCGANOptions = Field(default_factory=lambda: DCGANOptions.model_validate({}))
    betas: tuple[float, float] = Field((0.5, 0.999), description="of Adam")
    discriminator_width: int = Field(64, ge=1, le=512, description="channels of the discriminator's first layer")
    spectral_norm: bool = Field(
        False, description="the discriminator's weights have spectral norm 1, in place of batch norms"
    )
    augment: bool = Field(False, description="both nets' pictures reach the discriminator shifted, recoloured and cut")
    phase: list[PhaseConfig] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> DCGANConfig:
        if self.data.crop != self.generator.side:
            raise ValueError(f"data.crop {self.data.crop}: generator.side is {self.generator.side}; make them equal")
        if self.generator.nc != 3:
            raise ValueError("pictures are RGB: generator.nc is 3")
        if any(phase.batch == 1 for phase in self.phase):
            raise ValueError("phase.batch 1: batch norm needs more than one value; use a larger batch")
        if self.data.validation is not None:
            raise ValueError(
                "data.validation: pictures from random numbers have no truth to be compared with; remove it"
            )
        return self
