"""The options of discriminators that several tasks train."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from training.run_config import ConfigSection, FitConfig


class DiscriminatorConfig(ConfigSection):
    """A discriminator's training."""

    initial: Path | None = Field(None, description="judge.pth of a run to start from; left out: random weights")
    rate: float = Field(1 / 3, gt=0, description="its learning rate, as a fraction of the generator's")
    betas: tuple[float, float] = Field((0.0, 0.99), description="of its Adam")
    penalty: float = Field(0.03, ge=0, description="weight of R1, its squared gradient on photographs")
    penalty_every: int = Field(16, ge=1, description="steps from one R1 to the next; R1 is multiplied by this number")


class ProjectedJudgeConfig(DiscriminatorConfig):
    """The discriminator on VGG16's features, with its own optimiser and R1."""

    width: int = Field(128, ge=1, description="channels of its heads")
    penalty: float = Field(1e-5, ge=0, description="weight of R1; VGG16's features are steep, so it is small")


def starting_judges(config: FitConfig) -> dict[str, DiscriminatorConfig]:
    """Return the sections of a config's discriminators that start from a file, by their names."""
    return {name: section for name, section in config if isinstance(section, DiscriminatorConfig) and section.initial}
