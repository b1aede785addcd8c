"""Flags that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.engine_names import EngineChoice
from engines.terminal.folders import folder_flag

if TYPE_CHECKING:
    from engines.engine_choice import EngineOptions

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="Override a value of the file. Repeat for several."),
]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda (the first GPU, or the local rank's) or cuda:N. By default a GPU if there is one."),
]
Labels = Annotated[
    Literal["facades"] | None,
    typer.Option(help="For models of class ids: data set whose label colours the inputs of the pairs have."),
]


@dataclass(frozen=True, slots=True)
class MetricWeights:
    """The files with the weights of the metrics' networks; a metric without its file is not measured."""

    lpips_features: Annotated[
        Path | None,
        typer.Option(help="AlexNet's features (safetensors), for LPIPS. Without them LPIPS is not measured."),
    ] = None
    vgg_features: Annotated[
        Path | None, typer.Option(help="VGG16's features (safetensors), for the VGG distance and KID of patches.")
    ] = None
    dists_weights: Annotated[
        Path | None,
        typer.Option(
            help="File weights.pt of DISTS-pytorch, for DISTS, which also needs all five blocks in --vgg-features."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """The engine that runs the model."""

    engine: Annotated[
        EngineChoice,
        typer.Option(
            metavar="NAME",
            help="Runtime of the model: auto, trt, inductor, onnxrt-cuda, openvino, onnxrt or fake.",
            envvar="RETOUCH_ENGINE",
        ),
    ] = "auto"
    cache_dir: Annotated[Path, folder_flag("Engine cache.", envvar="RETOUCH_ENGINE_CACHE_DIR")] = Path("cache")

    def options(self) -> EngineOptions:
        """Return the options with which the engine is opened."""
        from engines.engine_choice import EngineOptions  # noqa: PLC0415

        return EngineOptions(choice=self.engine, cache_dir=self.cache_dir)
