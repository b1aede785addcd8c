"""The options that every run's config shares: data, phases, output and precision."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Layout = Literal["folder", "shards", "celeba", "celeba_hq", "places", "pairs", "facades", "cityscapes", "ade20k"]


PAIRED_LAYOUTS: tuple[Layout, ...] = ("pairs", "facades", "cityscapes", "ade20k")
"""Layouts with an input and a target for each picture."""


def refuse_pairs(layout: Layout) -> None:
    """Raise ValueError for layouts with an input and a target, in configs of nets that learn from pictures alone."""
    if layout in PAIRED_LAYOUTS:
        raise ValueError(f"data.layout {layout} is for pix2pix, pix2pixhd and dcgan")


def check_coverage(name: str, coverage: tuple[float, float]) -> None:
    """Raise ValueError unless the option is a smallest and a largest fraction of a crop, between 0 and 1."""
    low, high = coverage
    if not 0 < low <= high < 1:
        raise ValueError(f"{name} {coverage}: two numbers between 0 and 1, the smaller first")


class ConfigSection(BaseModel):
    """A frozen section of options; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataConfig(ConfigSection):
    """The training pictures and how crops are cut from them."""

    path: Path = Field(description="folder of pictures, of tar shards, of side-by-side pairs, or of a public data set")
    layout: Layout = Field("folder", description="how the folder is laid out")
    split: Literal["train", "val"] = Field("train", description="of a public data set: which part")
    direction: Literal["AtoB", "BtoA"] = Field(
        "AtoB", description="pairs, facades: A is the left half; BtoA has it as the target"
    )
    load_side: int = Field(288, ge=8, description="pictures are shrunk to this shorter side; pairs are resized to it")
    crop: int = Field(256, ge=8, description="side of a training crop; smaller pictures are enlarged to it")
    flip: bool = Field(True, description="mirror half of the crops left to right")
    scale: tuple[float, float] = Field(
        (1.0, 1.0),
        description="range of a random factor: the side of the region that a crop shows, in sides of the crop",
    )
    limit: int = Field(0, ge=0, description="use only the first so many pictures; 0: all")
    threads: int = Field(0, ge=0, description="threads that decode; 0: as many as cores")
    validation: Path | None = Field(
        None, description="folder of pictures (or pairs) to report PSNR on; never trained on"
    )
    validation_limit: int = Field(64, ge=1, description="how many of them")

    @model_validator(mode="after")
    def _check_consistency(self) -> DataConfig:
        low, high = self.scale
        if not 0.25 <= low <= high <= 4:
            raise ValueError(f"data.scale {self.scale}: two numbers from 0.25 to 4, the smaller first")
        if self.load_side < self.crop:
            raise ValueError(f"data.load_side {self.load_side} is smaller than data.crop {self.crop}")
        return self


class MasksConfig(ConfigSection):
    """The holes of the training pictures."""

    coverage: tuple[float, float] = Field((0.05, 0.55), description="smallest and largest part of a crop in the hole")
    folder: Path | None = Field(None, description="pictures of masks, bright = hole, used beside the drawn ones")
    folder_share: float = Field(0.25, ge=0, le=1, description="part of the batch whose masks come from the folder")

    @model_validator(mode="after")
    def _check_consistency(self) -> MasksConfig:
        check_coverage("masks.coverage", self.coverage)
        return self


class PhaseConfig(ConfigSection):
    """A part of the run: a number of steps with one set of options."""

    steps: int = Field(ge=1, description="optimiser steps in this phase")
    batch: int = Field(ge=1, description="pictures a step, over all GPUs together")
    learning_rate: float = Field(gt=0, description="after the warm-up")
    final_learning_rate: float = Field(0.0, ge=0, description="at the end; a cosine leads there")
    warm_up: int = Field(0, ge=0, description="steps of linear rise from zero")
    hold: float = Field(0.0, ge=0, lt=1, description="part of the phase at full rate before the cosine begins")


class FitConfig(ConfigSection):
    """The options that all runs share."""

    output: Path = Field(description="run directory: checkpoint.pt, generator.pth, log.jsonl, sheets, TensorBoard")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of initial weights, order, crops and masks")
    precision: Precision = Field("bf16", description="what convolutions compute in; fp16 scales its losses")
    channels_last: bool = Field(True, description="tensors in NHWC order, which tensor cores read")
    compile: bool | None = Field(
        None, description="torch.compile for nets with their losses; left out: on a GPU, and not on a CPU"
    )
    overlap: bool = Field(
        False, description="several GPUs: compile in pieces, so that gradients are averaged while others are computed"
    )
    cuda_graphs: bool = Field(False, description="replay a step as one CUDA graph")
    deterministic: bool = Field(False, description="bit-equal runs on the same host; slower on a GPU")
    betas: tuple[float, float] = Field((0.9, 0.99), description="of Adam")
    ema_decay: float = Field(0.999, ge=0, lt=1, description="of the averaged weights, which are what is saved; 0: none")
    initial: Path | None = Field(None, description="a generator's weights to begin with; else random ones")
    log_every: int = Field(50, ge=1, description="steps between lines of log.jsonl; the only waits for the device")
    checkpoint_every: int = Field(2000, ge=1, description="steps between checkpoints")
    sheet_every: int = Field(2000, ge=1, description="steps between sample sheets and validations")
    seconds: float | None = Field(
        None, gt=0, description="duration of the run's steps, which the phases share in proportion to their `steps`"
    )
    sheet_pictures: int = Field(8, ge=1, le=64, description="rows of a sample sheet")
    half_weights: bool = Field(True, description="generator.pth holds FP16 tensors, half the size")
    data: DataConfig
