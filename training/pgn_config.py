"""The options of a PGN run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from export.generators.pgn import SIDE, PGNOptions
from training.run_config import FitConfig, PhaseConfig, refuse_pairs


class PGNPhase(PhaseConfig):
    """A phase of PGN, with the weights of its losses, each summed over the stages."""

    l1: float = Field(1.0, ge=0, description="mean |difference| of the whole picture, [0, 1] scale")
    l2: float = Field(0.0, ge=0, description="mean squared difference, which the public script of two stages has")
    total_variation: float = Field(1.0, ge=0, description="mean squared difference of neighbours")
    adversarial: float = Field(0.001, ge=0, description="loss of the discriminators; 0: none is trained")


class PGNConfig(FitConfig):
    """The options of progressive generative networks with an LSTM (Zhang et al. 2018)."""

    model: Literal["pgn"]
    generator: PGNOptions = Field(default_factory=lambda: PGNOptions.model_validate({}))
    betas: tuple[float, float] = Field((0.5, 0.999), description="of Adam")
    gan: Literal["minimax", "vanilla"] = Field(
        "minimax", description="the generator's side of cross entropy: away from fake, or towards real (two stages)"
    )
    discriminator_width: int = Field(64, ge=1, le=512, description="channels of each discriminator's first layer")
    discriminator_rate: float = Field(0.1, gt=0, description="their learning rate, in parts of the generator's")
    phase: list[PGNPhase] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> PGNConfig:
        if self.data.crop != SIDE:
            raise ValueError(f"data.crop {self.data.crop}: nets of this family take {SIDE} and nothing else")
        refuse_pairs(self.data.layout)
        for index, phase in enumerate(self.phase):
            if not phase.l1 and not phase.l2:
                raise ValueError(f"phase.{index}: without l1 and l2 no loss determines the fill; set one")
        return self
