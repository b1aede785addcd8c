"""The options that distinguish pix2pixHD nets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from export.generators.family import GeneratorOptions
from export.generators.pix2pixhd.encoder import EncoderShape


class Pix2PixHDOptions(GeneratorOptions):
    """The arguments of the public `define_G` that shape the net."""

    net: Literal["global", "local"] = "global"
    norm: Literal["instance", "batch"] = "instance"
    ngf: int = Field(64, ge=1, le=512, description="channels of the first layer; public local nets have 32")
    label_nc: int = Field(35, ge=0, le=255, description="classes; 0: the input is a picture")
    image_channels: int = Field(3, ge=1, le=3, description="channels of that picture")
    edges: bool = Field(True, description="an edge channel made from instance ids; false: --no_instance")
    out_channels: int = Field(3, ge=1, le=3)
    downsamplings: int = Field(4, ge=1, le=6)
    blocks: int = Field(9, ge=1, le=32)
    enhancers: int = Field(1, ge=1, le=3, description="local nets only")
    local_blocks: int = Field(3, ge=1, le=16, description="local nets only")
    features: int = Field(0, ge=0, le=64, description="channels of the encoder's features; 0: there is no encoder")
    features_of: Literal["instance", "label"] = Field("instance", description="label: nets trained with --label_feat")
    encoder_width: int = Field(16, ge=1, le=256, description="channels of the encoder's first layer (nef)")
    encoder_downsamplings: int = Field(4, ge=1, le=6)
    clusters: int = Field(
        0,
        ge=0,
        le=256,
        description="styles of each class, of which one is drawn; 0: a reference picture gives the style",
    )
    side: int = Field(0, ge=0, le=2048, description="served at this side alone; 0: 512 and 1024. Not visible in a file")

    @property
    def in_channels(self) -> int:
        """The number of input channels of the net."""
        return (self.label_nc or self.image_channels) + self.edges + self.features

    @property
    def multiple_of(self) -> int:
        """The number that height and width must be multiples of."""
        halvings = self.downsamplings + (self.enhancers if self.net == "local" else 0)
        return int(2 ** max(halvings, self.encoder_downsamplings if self.has_encoder else 0))

    @property
    def takes_instances(self) -> bool:
        """Whether instance ids are an input: for edges, or to average features over instances."""
        return self.edges or (self.has_encoder and self.features_of == "instance")

    @property
    def has_encoder(self) -> bool:
        """Whether the graph encodes features; those of clusters were encoded before the export."""
        return self.features > 0 and not self.clusters

    @property
    def encoder(self) -> EncoderShape:
        """The encoder's arguments; its input has the generator's output channels."""
        return EncoderShape(self.out_channels, self.features, self.encoder_width, self.encoder_downsamplings)
