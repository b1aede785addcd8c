"""The table of generator families. To add one: write its file and its test, and add a line here (CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from export.generators.dcgan import DCGAN
from export.generators.deepfillv2.generator import DeepFillV2
from export.generators.family import Family
from export.generators.fillnet.generator import FillNet
from export.generators.lama.generator import LaMa
from export.generators.migan.generator import MIGAN
from export.generators.pconv.nvidia import PConvNvidia
from export.generators.pconv.unet import PConv
from export.generators.pdgan.generator import PDGAN
from export.generators.pgn import PGN
from export.generators.pix2pix import Pix2Pix
from export.generators.pix2pixhd.generator import Pix2PixHD

_TABLE: tuple[Family[Any], ...] = (
    PConv(),
    PConvNvidia(),
    Pix2Pix(),
    Pix2PixHD(),
    PGN(),
    PDGAN(),
    DCGAN(),
    FillNet(),
    MIGAN(),
    LaMa(),
    DeepFillV2(),
)
FAMILIES: Mapping[str, Family[Any]] = MappingProxyType({family.name: family for family in _TABLE})
