"""The training experiments of the sources, and the figures that they state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A figure of a source."""

    what: str
    device: str
    speed_up: float | None
    """Relative to the source's own FP32; None if the source states none."""
    source: str
    power_percent: float | None = None
    """Change of mean power relative to the source's own FP32, in percent."""


@dataclass(frozen=True)
class Study:
    """An experiment that can be rerun."""

    model: str
    config: str
    """File name of the default config, in training/configs."""
    published: tuple[Published, ...]
    cells: tuple[str, ...] = ()
    """Cells besides the default ones: the source's experiment, and the fastest ways to train this net."""
    sizes: tuple[str, ...] = ()
    """Overrides of the default config: the public code's sizes, where the config has smaller ones."""
    phase: int = 0
    """Index of the phase of the default config whose steps are measured."""


_INPAINTING = "tommarvoloriddle/Optimization-of-Image-inpainting-GANs, README at 1222565"
_REPLAYED = ("bf16-compiled-graphs", "fp16-compiled-graphs")
"""Cells of every study: without CUDA graphs a GPU runs most nets' kernels faster than a host launches them."""
_UNTRACED = "as this project's issue 21 gives it; no publication was found"

STUDIES = {
    "pconv": Study("pconv", "photos.toml", (Published("AMP", "not stated", None, _UNTRACED),), _REPLAYED),
    "pix2pix": Study("pix2pix", "facades.toml", (), _REPLAYED, sizes=("generator.ngf=64", "phase.0.batch=32")),
    "pix2pixhd": Study(
        "pix2pixhd",
        "facades-labels.toml",
        (
            Published("AMP", "not stated", 1.8, _UNTRACED),
            Published("AMP, batch doubled", "not stated", 2.25, _UNTRACED),
        ),
        ("fp16-compiled-batch2", *_REPLAYED),
        (  # the public global net; one picture of 512×1024 per step becomes two squares
            "generator.ngf=64",
            "generator.downsamplings=4",
            "discriminators=2",
            "data.load_side=572",
            "data.crop=512",
            "phase.0.batch=2",
            "phase.0.perceptual=10.0",
        ),
    ),
    "pgn": Study(
        "pgn",
        "photos-centre.toml",
        (
            Published("mixed precision", "A100", 3.67, _INPAINTING, -5.71),
            Published("mixed precision", "V100", 1.37, _INPAINTING, -51.21),
        ),
        _REPLAYED,
    ),
    "pdgan": Study(
        "pdgan",
        "photos-diverse.toml",
        (
            Published("mixed precision", "A100", 1.33, _INPAINTING, -14.95),
            Published("mixed precision", "V100", 2.24, _INPAINTING, -33.98),
        ),
        _REPLAYED,
        phase=1,  # the SPDNorm generator
    ),
    "dcgan": Study(
        "dcgan",
        "housefronts.toml",
        (Published("DDP and a JIT compiler", "not stated", None, _UNTRACED),),
        ("fp32-compiled", "fp32-2gpu", *_REPLAYED),
        (  # the sizes of PyTorch's example
            "generator.side=64",
            "generator.ngf=64",
            "discriminator_width=64",
            "augment=false",
            "data.load_side=72",
            "data.crop=64",
            "phase.0.batch=128",
        ),
    ),
}
"""The studies, by their name on the command line."""
