"""The recipe of a data set: a TOML file with every source, its licence and how much of it to use."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from engines.files.toml_text import parse_toml
from engines.validation import validation_message
from training.errors import ConfigInvalid


class Source(BaseModel):
    """A folder or git repository of pictures.

    path: relative to the root that the command is given.
    include: globs of paths inside it; `*` also matches `/`.
    licence: as the source states it; goes into the manifest and onto the model's card.
    limit: maximum number of pictures, drawn at random by the recipe's seed; None for all.
    crops: tiles to cut from each picture that is large enough, besides the whole picture.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    path: Path
    include: tuple[str, ...] = ("*.jpg", "*.jpeg", "*.png", "*.webp")
    licence: str
    limit: Annotated[int, Field(ge=1)] | None = None
    crops: Annotated[int, Field(ge=0)] = 0


class Recipe(BaseModel):
    """Sources in order of precedence (of two duplicates the first is kept) and the format of the output.

    max_side: shorter side in pixels that larger pictures are shrunk to.
    min_side: shorter side in pixels that smaller pictures are enlarged to, for training crops of that size.
    min_source_side: shorter side in pixels below which a picture is left out.
    max_aspect: maximum longer side as a multiple of the shorter; the middle is kept.
    min_contrast: minimum standard deviation of the grey values, 0 to 255.
    duplicate_bits: maximum differing bits (of 64) of the fingerprints of two pictures that count as duplicates.
    held_out_bits: the same for held-out pictures; larger, because leaving out a doubtful picture does no harm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_side: int = Field(288, ge=32)
    min_side: int = Field(256, ge=16)
    min_source_side: int = Field(224, ge=16)
    max_aspect: float = Field(1.5, ge=1)
    min_contrast: float = Field(12.0, ge=0)
    duplicate_bits: int = Field(6, ge=0, le=64)
    held_out_bits: int = Field(12, ge=0, le=64)
    jpeg_quality: int = Field(90, ge=1, le=100)
    shard_mib: float = Field(60.0, gt=0)
    seed: int = 0
    source: tuple[Source, ...] = Field(min_length=1)

    @field_validator("source")
    @classmethod
    def _names_differ(cls, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """Refuse two sources with one name: the manifest counts by name, and pictures are named after their source."""
        if repeated := [name for name, count in Counter(source.name for source in sources).items() if count > 1]:
            raise ValueError(f"several sources are called {', '.join(repeated)}; give each a different name")
        return sources


def read_recipe(path: Path) -> Recipe:
    """Read the recipe in a TOML file.

    Raises:
        ConfigInvalid: it is missing, malformed, or has an unknown or wrong setting.
    """
    try:
        return Recipe.model_validate(parse_toml(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigInvalid(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    except ValidationError as error:
        faults = validation_message(error, "setting", Recipe.model_fields)
        raise ConfigInvalid(f"{path}: not a recipe for gathering: {faults}") from error
    except ValueError as error:
        raise ConfigInvalid(f"{path}: not TOML ({error})") from error
