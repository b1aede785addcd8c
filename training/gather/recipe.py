"""What to gather: one TOML file that names every source, its licence and how much of it to take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.errors import ConfigInvalid

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Source(BaseModel):
    """A folder or a git repository of pictures.

    path: under the root that the command is given.
    include: globs of paths inside it; `*` crosses folders.
    licence: as the source states it; goes into the manifest and onto the model's card.
    limit: most pictures of it, drawn at random by the recipe's seed; None takes all.
    crops: tiles to cut from each picture large enough for it, beside the whole.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    path: Path
    include: tuple[str, ...] = ("*.jpg", "*.jpeg", "*.png", "*.webp")
    licence: str
    limit: Annotated[int, Field(ge=1)] | None = None
    crops: Annotated[int, Field(ge=0)] = 0


class Recipe(BaseModel):
    """Sources in order of precedence (of two alike the first stays) and the form of what is written.

    side: pixels of the shorter side of what is larger.
    least: pixels of the shorter side to which what is smaller is enlarged, for training crops that size.
    smallest: pixels of the shorter side under which a picture is left out.
    longest: most pixels of the longer side as a multiple of the shorter; the middle is kept.
    flattest: least standard deviation of the grey values, 0 to 255.
    alike: most differing bits, of 64, of two pictures that count as the same.
    alike_held_out: the same against the pictures that must stay unseen; wider, for a doubtful one is no loss.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    side: int = Field(288, ge=32)
    least: int = Field(256, ge=16)
    smallest: int = Field(224, ge=16)
    longest: float = Field(1.5, ge=1)
    flattest: float = Field(12.0, ge=0)
    alike: int = Field(6, ge=0, le=64)
    alike_held_out: int = Field(12, ge=0, le=64)
    jpeg_quality: int = Field(90, ge=1, le=100)
    shard_mib: float = Field(60.0, gt=0)
    seed: int = 0
    source: tuple[Source, ...] = Field(min_length=1)


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file.

    Raises:
        ConfigInvalid: it is missing, malformed, or has an unknown or wrong setting.
    """
    try:
        return Recipe.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise ConfigInvalid(f"{path}: not a recipe for gathering: {error}") from error
