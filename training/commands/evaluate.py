"""`python -m training evaluate`: measures a model on held-out pictures, beside OpenCV's classical methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.terminal.flag_groups import expanded
from engines.terminal.log_lines import logs_on_stderr
from training.commands.flags import EngineFlags, Labels, MetricWeights

if TYPE_CHECKING:
    from training.evaluate.cases import Case, Protocol
    from training.evaluate.painters import Baseline
    from training.evaluate.shapes import Kind

_GENERATED = "generated"
_SIDE = 256


@dataclass(frozen=True, slots=True)
class CaseFlags:
    """The test cases: which pictures, how large, with which holes."""

    data: Annotated[Path, typer.Option(help="Folder of held-out images, or of pairs side by side.")]
    masks: Annotated[str, typer.Option(help=f"Folder of masks, whose white is filled, or {_GENERATED}.")] = _GENERATED
    coverage: Annotated[str, typer.Option(help="Range of the fraction of the image that generated holes cover.")] = (
        "0.1-0.5"
    )
    holes: Annotated[
        str | None,
        typer.Option(help="Kinds of generated holes, which alternate: strokes (the default), boxes, blobs, or all."),
    ] = None
    pairs: Annotated[
        Literal["AtoB", "BtoA"] | None,
        typer.Option(
            help="For translation: AtoB turns the left half of each pair into the right half, BtoA the reverse."
        ),
    ] = None
    labels: Labels = None
    size: Annotated[int | None, typer.Option(min=16, help="Side of centre crops in pixels. By default 256.")] = None
    width: Annotated[
        int | None, typer.Option(min=16, help="Measure whole images instead, with a longer side of so many pixels.")
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the generated holes.")] = 0
    limit: Annotated[int | None, typer.Option(min=1, help="Measure only the first so many images.")] = None

    def protocol(self) -> Protocol:
        """Parse the flags.

        Raises:
            typer.BadParameter: `coverage` or `holes` cannot be parsed, or a flag has no effect with another one.
        """
        from training.evaluate.cases import Protocol  # noqa: PLC0415 -- loads OpenCV
        from training.evaluate.holes import Band  # noqa: PLC0415

        self._refuse_ignored()
        return Protocol(
            data=self.data,
            masks=None if self.masks == _GENERATED else Path(self.masks),
            coverage=Band(*_parse_coverage(self.coverage)),
            kinds=_kinds(self.holes or "strokes"),
            pairs=self.pairs,
            labels=self.labels,
            size=None if self.width else self.size or _SIDE,
            width=self.width or self.size or _SIDE,
            seed=self.seed,
            limit=self.limit,
        )

    def _refuse_ignored(self) -> None:
        masks = None if self.masks == _GENERATED else self.masks
        given = {"--size": self.size, "--width": self.width, "--masks": masks, "--holes": self.holes}
        ignored = [flag for flag, value in given.items() if value is not None]
        if self.pairs and ignored:
            raise typer.BadParameter(f"--pairs are measured whole and without holes: leave out {', '.join(ignored)}")
        if self.size and self.width:
            raise typer.BadParameter("--size measures crops, --width whole pictures: leave one out")
        if masks and self.holes:
            raise typer.BadParameter("--holes are generated, --masks are files: leave one out")


@dataclass(frozen=True, slots=True)
class SheetFlags:
    """The contact sheet."""

    sheet: Annotated[Path | None, typer.Option(help="File for a contact sheet (PNG).")] = None
    sheet_rows: Annotated[int, typer.Option(min=1, help="Number of images on the contact sheet.")] = 12
    sheet_side: Annotated[
        int,
        typer.Option(min=16, help="Largest side in pixels of an image on the sheet; scaling down hides fine patterns."),
    ] = 256


@expanded
def evaluate(  # noqa: PLR0913 -- each is a flag, or a group of flags
    model: Annotated[
        Path, typer.Argument(help="Folder of the model version, models/NAME/VERSION, or a checkpoint for a quick look.")
    ],
    *,
    cases: CaseFlags,
    against: Annotated[
        list[Path] | None, typer.Option(help="Another model, measured on the same images. Repeat for several.")
    ] = None,
    baselines: Annotated[
        str,
        typer.Option(
            help="OpenCV's methods to compare with: telea, ns, both separated by a comma, or empty. None for pairs."
        ),
    ] = "telea,ns",
    weights: MetricWeights,
    fid_features: Annotated[Path | None, typer.Option(help="TorchScript net whose features FID compares.")] = None,
    server: Annotated[
        str | None, typer.Option(help="Also measure the model as this server serves it, http://HOST:PORT.")
    ] = None,
    engine: EngineFlags,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for all figures as JSON.")] = None,
    sheet: SheetFlags,
) -> None:
    """Measure a model by class of hole beside OpenCV's methods: PSNR, SSIM, LPIPS, DISTS, VGG distance, KID, L1, FID.

    For a model that generates from random numbers: KID and diversity of a set of
    its pictures, beside photographs.

    A model's folder runs in the engine that would serve it, so that the served
    results are measured.

    Example: python -m training evaluate models/photos/5 --data held-out
    --lpips-features alexnet.safetensors
    """
    from training.evaluate.report import print_report  # noqa: PLC0415
    from training.evaluate.session import Request, run  # noqa: PLC0415 -- loads torch

    request = Request(
        model=model,
        protocol=cases.protocol(),
        against=tuple(against or ()),
        baselines=() if cases.pairs else _parse_baselines(baselines),
        **asdict(weights),
        fid_features=fid_features,
        server=server,
        engine=engine.options(),
        json_file=json_file,
        **asdict(sheet),
    )
    with logs_on_stderr():
        report = run(request, _progress_bar)
    print_report(report)


def _parse_coverage(text: str) -> tuple[float, float]:
    low, _, high = text.partition("-")
    try:
        found = float(low), float(high)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: write LOW-HIGH, as in 0.1-0.5", param_hint="--coverage") from error
    if not 0 < found[0] < found[1] <= 1:
        raise typer.BadParameter(f"{text!r}: two parts of the picture, the smaller first", param_hint="--coverage")
    return found


def _kinds(text: str) -> tuple[Kind, ...]:
    from training.evaluate.shapes import KINDS  # noqa: PLC0415

    wanted = set(KINDS if text == "all" else text.split(","))
    if unknown := wanted - set(KINDS):
        raise typer.BadParameter(f"{sorted(unknown)}: known are {', '.join(KINDS)} and all", param_hint="--holes")
    return tuple(kind for kind in KINDS if kind in wanted)


def _parse_baselines(text: str) -> tuple[Baseline, ...]:
    from training.evaluate.painters import BASELINES  # noqa: PLC0415

    if text in ("both", "nothing"):
        return BASELINES if text == "both" else ()
    wanted = {name for name in text.split(",") if name}
    if unknown := wanted - set(BASELINES):
        known = f"known are {', '.join(BASELINES)}, both and nothing"
        raise typer.BadParameter(f"{sorted(unknown)}: {known}", param_hint="--baselines")
    return tuple(name for name in BASELINES if name in wanted)


def _progress_bar(cases: Sequence[Case]) -> Iterator[Case]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    yield from track(cases, "painting", console=Console(stderr=True))
