"""The rows of the table of published models. A row has only what a public source states; unknown fields are empty."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engines.manifest import ModelName, Sha256

_HTTPS = Annotated[str, Field(pattern=r"^https://[^\s]+$")]


class Row(BaseModel):
    """One published file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ModelName
    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$", description="its name where it is published")
    about: str
    source: _HTTPS = Field(description="the page that states the row's facts")
    url: _HTTPS | None = Field(default=None, description="where it can be fetched; None if only a person can")
    redirect_hosts: tuple[str, ...] = Field(
        default=(), description="hosts that may be redirected to, besides url's own"
    )
    get_by_hand: str = Field(default="", description="how a person gets it, if `url` is None")
    size: int | None = Field(default=None, ge=1, description="bytes")
    sha256: Sha256 | None = None
    md5: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$", description="a label, no protection")
    licence: str = Field(default="", description="of the weights, in the publisher's words or an SPDX name")
    licence_source: _HTTPS | None = None
    training_data: str = ""
    command: Literal["export", "import"] = Field(description="the command that makes the model of the file")
    generator: str = Field(default="", description="with command export: the family")
    options: dict[str, str] = Field(default_factory=dict, description="--option of export, or flags of import")
    tried: bool = Field(default=False, description="whether anybody of this project has fetched it from `url`")

    @model_validator(mode="after")
    def _can_be_got(self) -> Row:
        if (self.url is None) != bool(self.get_by_hand):
            raise ValueError("a file has either a url or words on how to get it by hand")
        if (self.command == "export") != bool(self.generator):
            raise ValueError("`generator` belongs to command export")
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that a download may connect to."""
        return () if self.url is None else (urlsplit(self.url).hostname or "", *self.redirect_hosts)
