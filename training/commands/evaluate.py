"""`python -m training evaluate`: measures a model on held-out pictures, beside OpenCV's classical methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from engines.engine_names import EngineChoice

if TYPE_CHECKING:
    from training.evaluate.cases import Case
    from training.evaluate.painters import Baseline
    from training.evaluate.shapes import Kind

_GENERATED = "generated"


def evaluate(  # noqa: PLR0913, PLR0917 -- each is a flag
    model: Annotated[Path, typer.Argument(help="models/NAME/VERSION, or a checkpoint file for a quick look")],
    data: Annotated[Path, typer.Option(help="folder of pictures, or of pairs side by side")],
    masks: Annotated[str, typer.Option(help=f"folder of masks, white is filled; or {_GENERATED}")] = _GENERATED,
    coverage: Annotated[str, typer.Option(help="parts of the picture that generated holes cover")] = "0.1-0.5",
    holes: Annotated[
        str, typer.Option(help="kinds of generated holes, in turn: strokes, boxes, blobs, or all")
    ] = "strokes",
    pairs: Annotated[
        Literal["AtoB", "BtoA"] | None, typer.Option(help="translate A, the left half, into B, or back")
    ] = None,
    labels: Annotated[
        Literal["facades"] | None,
        typer.Option(help="for models of class ids: whose label colours the inputs of pairs are"),
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="another model, measured on the same pictures; may be given several times")
    ] = None,
    baselines: Annotated[str, typer.Option(help="telea, ns, both, or nothing; always nothing for pairs")] = "telea,ns",
    size: Annotated[int, typer.Option(min=16, help="side of centre crops in pixels")] = 256,
    width: Annotated[
        int | None, typer.Option(min=16, help="measure whole pictures of that longer side instead")
    ] = None,
    seed: Annotated[int, typer.Option(help="of the generated holes")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="only the first so many pictures")] = None,
    lpips_features: Annotated[
        Path | None, typer.Option(help="AlexNet features (safetensors) for LPIPS; without it LPIPS is left out")
    ] = None,
    vgg_features: Annotated[
        Path | None, typer.Option(help="VGG16 features (safetensors) for the VGG distance and KID of patches")
    ] = None,
    dists_weights: Annotated[
        Path | None,
        typer.Option(help="weights.pt of DISTS-pytorch, for DISTS; needs all five blocks in --vgg-features"),
    ] = None,
    fid_features: Annotated[Path | None, typer.Option(help="TorchScript feature net for FID")] = None,
    server: Annotated[
        str | None, typer.Option(help="address of a server with this model, http://HOST:PORT: measure it as served too")
    ] = None,
    engine: Annotated[EngineChoice, typer.Option(help="what runs the model", envvar="RETOUCH_ENGINE")] = "auto",
    cache_dir: Annotated[
        Path, typer.Option(help="of the engine: compiled graphs", envvar="RETOUCH_ENGINE_CACHE_DIR")
    ] = Path("cache"),
    json_file: Annotated[Path | None, typer.Option("--json", help="write all figures there")] = None,
    sheet: Annotated[Path | None, typer.Option(help="write a contact sheet there (PNG)")] = None,
    sheet_rows: Annotated[int, typer.Option(min=1, help="pictures on the contact sheet")] = 12,
    sheet_side: Annotated[
        int, typer.Option(min=16, help="larger pictures are made smaller on the sheet, which hides fine patterns")
    ] = 256,
) -> None:
    """Measure a model by class of hole against OpenCV: PSNR, SSIM, LPIPS, DISTS, VGG distance, KID, FID, L1 there.

    A model that draws from random numbers: KID of a set of its pictures and how different they are, beside photographs.

    A model's folder runs in the engine that would serve it, so that what is measured is what is served.
    """
    from rich.console import Console  # noqa: PLC0415

    from engines.engine_choice import EngineOptions  # noqa: PLC0415
    from engines.terminal.tables import print_table  # noqa: PLC0415
    from training.evaluate.cases import Protocol  # noqa: PLC0415 -- loads OpenCV
    from training.evaluate.holes import Band  # noqa: PLC0415
    from training.evaluate.report import gain_lines, table  # noqa: PLC0415
    from training.evaluate.session import Request, run  # noqa: PLC0415 -- loads torch

    protocol = Protocol(
        data=data,
        masks=None if masks == _GENERATED else Path(masks),
        coverage=Band(*_parse_coverage(coverage)),
        kinds=_kinds(holes),
        pairs=pairs,
        labels=labels,
        size=None if width else size,
        width=width or size,
        seed=seed,
        limit=limit,
    )
    request = Request(
        model=model,
        protocol=protocol,
        against=tuple(against or ()),
        baselines=() if pairs else _parse_baselines(baselines),
        lpips_features=lpips_features,
        dists_weights=dists_weights,
        vgg_features=vgg_features,
        fid_features=fid_features,
        server=server,
        engine=EngineOptions(choice=engine, cache_dir=cache_dir),
        json_file=json_file,
        sheet=sheet,
        sheet_rows=sheet_rows,
        sheet_side=sheet_side,
    )
    report = run(request, _progress_bar)
    console = Console()
    print_table(table(report), console)
    for line in gain_lines(report):
        console.print(line, markup=False, highlight=False)


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
