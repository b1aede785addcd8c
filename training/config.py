"""The options of a training run, read from a TOML file; unknown names are refused (docs/training_options.md)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from engines.files.toml_text import parse_toml
from engines.manifest import FixedSize, MultipleSize
from engines.validation import fault_message, unknown_name
from export.generators.pconv.unet import PConvOptions
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from training.dcgan_config import DCGANConfig
from training.errors import ConfigInvalid
from training.fill_config import FillConfig
from training.losses.patch_gan import smallest_side
from training.pdgan_config import PDGANConfig
from training.pgn_config import PGNConfig
from training.pix2pixhd_config import Pix2PixHDConfig
from training.run_config import DataConfig, FitConfig, Layout, MasksConfig, PhaseConfig, Precision, refuse_pairs

__all__ = [
    "DataConfig",
    "FitConfig",
    "Layout",
    "MasksConfig",
    "PhaseConfig",
    "Precision",
]  # re-exported, besides the names defined below


class PConvPhase(PhaseConfig):
    """A phase of a partial-convolution net, with the weights of its losses (a loss of weight 0 is not computed)."""

    hole: float = Field(6.0, ge=0, description="mean |difference| inside the hole, [0, 1] scale")
    valid: float = Field(1.0, ge=0, description="mean |difference| outside")
    log_mse: float = Field(0.0, ge=0, description="log of the hole's mean squared difference: what PSNR measures")
    perceptual: float = Field(0.0, ge=0, description="mean |difference| of VGG16 features at pool1, pool2, pool3")
    style: float = Field(0.0, ge=0, description="mean |difference| of their Gram matrices; textures appear above ~50")
    total_variation: float = Field(0.0, ge=0, description="mean |difference| of neighbours in and beside the hole")
    weave: float = Field(0.0, ge=0, description="penalty on patterns with the period of the decoder's upsampling")
    directed: float = Field(0.0, ge=0, description="VGG16 features scaled to length 1, at the last ReLU of each block")
    lpips: float = Field(0.0, ge=0, description="LPIPS of the filled picture, AlexNet: what `evaluate` measures")
    adversarial: float = Field(0.0, ge=0, description="the loss of a patch discriminator in the hole")
    features_of_output: bool = Field(False, description="features of the raw output too, as in the paper; costs a half")
    freeze_encoder_norm: bool = Field(False, description="batch norms of the encoder keep their running statistics")
    freeze_decoder_norm: bool = Field(False, description="those of the decoder too: for small batches")

    @property
    def needs_features(self) -> bool:
        """Whether a loss needs VGG16."""
        return self.perceptual > 0 or self.style > 0 or self.directed > 0


class Pix2PixPhase(PhaseConfig):
    """A phase of pix2pix."""

    l1: float = Field(100.0, ge=0, description="mean |difference| on the [-1, 1] scale")
    adversarial: float = Field(1.0, ge=0, description="the discriminator's loss; 0: no discriminator is trained")


class PConvConfig(FitConfig):
    """The options of a partial-convolution U-Net (Liu et al. 2018)."""

    model: Literal["pconv"]
    generator: PConvOptions = Field(default_factory=lambda: PConvOptions.model_validate({}))
    masks: MasksConfig = Field(default_factory=lambda: MasksConfig.model_validate({}))
    features: Path | None = Field(
        None, description="VGG16 features.0 to .14 or deeper (safetensors, torchvision's names)"
    )
    lpips_features: Path | None = Field(None, description="AlexNet (safetensors), as for evaluate --lpips-features")
    discriminator_width: int = Field(64, ge=1, le=512, description="channels of the PatchGAN's first layer")
    discriminator_layers: int = Field(3, ge=1, le=6, description="3: each output sees 70×70 pixels")
    phase: list[PConvPhase] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> PConvConfig:
        if self.data.crop % 2**self.generator.levels:
            raise ValueError(f"data.crop {self.data.crop} is not a multiple of 2^levels = {2**self.generator.levels}")
        if self.data.crop == 2**self.generator.levels:
            _refuse_single_value_batch_norm(self.phase)
        if any(phase.adversarial for phase in self.phase):
            _refuse_no_patch(self.data.crop, self.discriminator_layers, 2**self.generator.levels)
        if self.features is None and any(phase.needs_features for phase in self.phase):
            raise ValueError("losses on features need VGG16: give the file's path as features = …")
        if self.lpips_features is None and any(phase.lpips for phase in self.phase):
            raise ValueError("lpips needs AlexNet: give the file's path as lpips_features = …")
        refuse_pairs(self.data.layout)
        return self


def _refuse_single_value_batch_norm(phases: Sequence[PConvPhase]) -> None:
    """Refuse batches of one picture if the innermost layer is 1×1: its batch norm needs more than one value."""
    for index, phase in enumerate(phases):
        if phase.batch == 1 and not phase.freeze_encoder_norm:
            raise ValueError(
                f"phase.{index}.batch 1: data.crop is 2^levels, which leaves batch norm a single value; "
                "use a larger batch or crop, fewer levels, or freeze_encoder_norm"
            )


def _refuse_no_patch(crop: int, layers: int, multiple: int | None) -> None:
    """Refuse crops that leave the discriminator no patch; otherwise its phase would fail, perhaps after hours.

    Args:
        crop: `data.crop`.
        layers: layers of the discriminator.
        multiple: the number that crops must be multiples of; None if any size fits.
    """
    needed = smallest_side(layers)
    if crop >= needed:
        return
    fewer = f"discriminator_layers of at most {max(n for n in range(1, layers) if smallest_side(n) <= crop)}"
    cure = fewer if multiple is None else f"a crop of {math.ceil(needed / multiple) * multiple} or more, or {fewer}"
    raise ValueError(f"data.crop {crop}: a discriminator of {layers} layers needs {needed}; use {cure}")


class Pix2PixTrained(Pix2PixOptions):
    """The generator options of a pix2pix run."""

    dropout: bool = Field(True, description="train with dropout, as upstream does")


class Pix2PixConfig(FitConfig):
    """The options of pix2pix (Isola et al. 2017): conditional GAN + L1."""

    model: Literal["pix2pix"]
    generator: Pix2PixTrained = Field(default_factory=lambda: Pix2PixTrained.model_validate({}))
    betas: tuple[float, float] = Field((0.5, 0.999), description="of Adam")
    gan: Literal["vanilla", "lsgan"] = Field("vanilla", description="cross entropy, or least squares")
    discriminator_width: int = Field(64, ge=1, le=512, description="channels of the PatchGAN's first layer")
    discriminator_layers: int = Field(3, ge=1, le=6, description="3: each output sees 70×70 pixels")
    phase: list[Pix2PixPhase] = Field(min_length=1, description="one [[phase]] after another")

    @model_validator(mode="after")
    def _check_consistency(self) -> Pix2PixConfig:
        if self.data.layout != "pairs":
            raise ValueError("pix2pix trains on data.layout = 'pairs'")
        if self.generator.in_channels != 3 or self.generator.out_channels != 3:
            raise ValueError("pairs are RGB: generator.in_channels and out_channels are 3")
        size, crop = Pix2Pix().interface(self.generator).size, self.data.crop
        if isinstance(size, FixedSize) and crop != size.height:
            raise ValueError(f"data.crop {crop}: {self.generator.net} takes {size.height} and nothing else")
        if isinstance(size, MultipleSize) and crop % size.multiple_of:
            raise ValueError(f"data.crop {crop} is not a multiple of {size.multiple_of}, as {self.generator.net} needs")
        if any(phase.adversarial for phase in self.phase):
            multiple = size.multiple_of if isinstance(size, MultipleSize) else None
            _refuse_no_patch(crop, self.discriminator_layers, multiple)
        return self


AnyConfig = PConvConfig | Pix2PixConfig | FillConfig | DCGANConfig | Pix2PixHDConfig | PGNConfig | PDGANConfig


def load_config(path: Path, overrides: Sequence[str] = ()) -> AnyConfig:
    """Read a config file and apply overrides of the form `section.option=value` (TOML values or bare words).

    Raises:
        ConfigInvalid: the file is missing or not TOML, or an option is unknown or invalid; the message names it.
    """
    try:
        values = parse_toml(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigInvalid(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    except ValueError as error:
        raise ConfigInvalid(f"{path}: not TOML ({error})") from error
    for override in overrides:
        _apply_override(values, override)
    adapter: TypeAdapter[AnyConfig] = TypeAdapter(Annotated[AnyConfig, Field(discriminator="model")])
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        raise ConfigInvalid(f"{path}: {_explain_faults(error, _option_names(adapter))}") from error


def _apply_override(values: dict[str, Any], override: str) -> None:
    name, separator, text = override.partition("=")
    *sections, option = name.split(".")
    if not separator or not option:
        raise ConfigInvalid(f"{override!r}: write OPTION=VALUE, as in --set data.path=photos")
    place: Any = values
    try:
        for section in sections:
            place = place[int(section)] if isinstance(place, list) else place.setdefault(section, {})
        place[option] = _parse_value(text)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigInvalid(f"{override!r}: no such option; phases are numbered, as in phase.0.steps=10") from error


def _parse_value(text: str) -> object:
    """Parse a TOML value; anything else is a string."""
    try:
        return parse_toml(f"x = {text}")["x"]
    except ValueError:
        return text


def _option_names(adapter: TypeAdapter[AnyConfig]) -> set[str]:
    """Return the names of all options, of every section."""
    return {name for section in adapter.json_schema()["$defs"].values() for name in section.get("properties", ())}


def _explain_faults(error: ValidationError, options: Collection[str]) -> str:
    parts = []
    for fault in error.errors():
        place = [
            str(part)
            for part in fault["loc"]
            if part not in ("pconv", "pix2pix", "fillnet", "dcgan", "pix2pixhd", "pgn", "pdgan")
        ]
        where = ".".join(place)
        if fault["type"] == "extra_forbidden" and place[-1] in options:
            parts.append(f"{where}: another model or section has this option, and this one has none; remove it")
        elif fault["type"] == "extra_forbidden":
            parts.append(f"{where}: {unknown_name('option', place[-1], options)}")
        else:
            parts.append(f"{where}: {fault_message(fault)}" if where else fault_message(fault))
    return "; ".join(parts)
