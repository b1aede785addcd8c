"""`retouch inpaint`, `translate` and `generate`: one picture or many, on a server or in this process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engines.engine_names import EngineChoice
from engines.terminal.end_signals import ending_in_order
from engines.terminal.flag_groups import expanded
from engines.terminal.folders import folder_flag
from retouch.filling.jobs import (
    FillJob,
    Format,
    fill_jobs,
    generation_jobs,
    missing_jobs,
    with_instances_and_references,
    with_samples,
)

if TYPE_CHECKING:
    from retouch.client.options import Task
    from retouch.filling.filler import Filler
    from retouch.filling.run import FillOutcome

MaskMode = Literal["white", "black", "alpha"]
Strategy = Literal["auto", "crop", "whole"]
Texture = Literal["none", "copied"]

_RETRIES = 8
_Image = Annotated[Path, typer.Argument(help="An image (JPEG, PNG or WebP), or a folder of images.")]
_Mask = Annotated[
    Path,
    typer.Argument(
        help="The mask of the image, one mask for all images, or a folder of masks with the images' file names."
    ),
]
_Out = Annotated[  # text, because a Path does not keep the slash at the end of a folder
    str,
    typer.Option("--out", "-o", metavar="PATH", help="File to write; a folder if IMAGE is one, or if PATH ends in /."),
]
_Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Seed, for models that draw random numbers: the same seed gives the same result."),
]
_Samples = Annotated[
    int, typer.Option(min=1, max=8, help="Number of results for each image, as OUT-1.png, OUT-2.png …")
]
_Concurrency = Annotated[int, typer.Option(min=1, help="Number of images in progress at the same time.")]


@dataclass(frozen=True, slots=True)
class _Common:
    """The flags that all three commands share."""

    model: Annotated[
        str | None, typer.Option(help="Model, as NAME or NAME/VERSION. By default that of the settings.")
    ] = None
    image_format: Annotated[
        Format | None,
        typer.Option("--format", help="png, jpeg or webp. By default that of the suffix of --out, or png."),
    ] = None
    quality: Annotated[int | None, typer.Option(min=1, max=100, help="Quality of JPEG and WebP. By default 90.")] = None
    url: Annotated[
        str | None,
        typer.Option(help="Use the server at this address, http://HOST:PORT. By default this process runs the model."),
    ] = None
    models_dir: Annotated[Path | None, folder_flag("Model repository, without --url (RETOUCH_MODELS_DIR).")] = None
    engine: Annotated[
        EngineChoice | None,
        typer.Option(
            metavar="NAME",
            help="Runtime, without --url: auto, trt, inductor, onnxrt-cuda, openvino, onnxrt or fake (RETOUCH_ENGINE).",
        ),
    ] = None
    timeout: Annotated[float, typer.Option(min=0.001, help="Longest time in seconds for one image.")] = 120.0
    retries: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --url: how often a request that a busy server refuses is sent again. By default 8 times."
        ),
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace result files that exist.")] = False
    missing: Annotated[bool, typer.Option("--missing", help="Compute only the results that have no file yet.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False

    @property
    def files_may_exist(self) -> bool:
        """Whether result files may already exist."""
        if self.overwrite and self.missing:
            raise typer.BadParameter("--overwrite makes all pictures, --missing those without a result: leave one out")
        return self.overwrite or self.missing

    def open(self, task: Task) -> AbstractAsyncContextManager[Filler]:
        """Open the filler that makes the pictures: a server, or this process."""
        local_flags = {name: value for name in ("models_dir", "engine") if (value := getattr(self, name)) is not None}
        if self.url is None:
            if self.retries is not None:
                raise typer.BadParameter("--retries is for requests to a server: add --url, or leave it out")
            from retouch.filling.embedded import open_embedded_filler  # noqa: PLC0415 -- loads numpy and the engines

            return open_embedded_filler(local_flags, task, self.model, timeout_s=self.timeout)
        if local_flags:
            raise typer.BadParameter("a server has its own models: leave out --models-dir and --engine")
        from retouch.filling.server import open_server_filler  # noqa: PLC0415 -- loads httpx

        return open_server_filler(
            self.url, timeout_s=self.timeout, retries=_RETRIES if self.retries is None else self.retries
        )


@expanded
def inpaint(  # noqa: PLR0913, PLR0917 -- each is a flag
    image: _Image,
    mask: _Mask,
    out: _Out,
    mask_mode: Annotated[
        MaskMode | None,
        typer.Option(
            help="Mask pixels that are filled: white (128 and more), black (below 128) or alpha (alpha is 0)."
        ),
    ] = None,
    mask_resize: Annotated[
        Literal["nearest"] | None, typer.Option(help="Scale a mask of another size. By default it is refused.")
    ] = None,
    strategy: Annotated[
        Strategy | None,
        typer.Option(help="crop: crops around the holes; whole: the whole image; auto, the default, chooses."),
    ] = None,
    texture: Annotated[
        Texture | None,
        typer.Option(help="copied: copy texture from the image into the fill, which makes it sharper and is slower."),
    ] = None,
    seed: _Seed = None,
    samples: _Samples = 1,
    concurrency: _Concurrency = 4,
    *,
    common: _Common,
) -> None:
    """Fill the masked part of an image, or of every image in a folder.

    Example: retouch inpaint photo.jpg mask.png -o filled.png
    """
    jobs = fill_jobs(image, mask, out, common.image_format, overwrite=common.files_may_exist or samples > 1)
    jobs = with_samples(jobs, samples, overwrite=common.files_may_exist)
    own = {"mask_mode": mask_mode, "mask_resize": mask_resize, "strategy": strategy, "texture": texture, "seed": seed}
    _fill("inpaint", jobs, {**own, "samples": samples if samples > 1 else None}, common, concurrency)


@expanded
def translate(  # noqa: PLR0913, PLR0917 -- each is a flag
    image: _Image,
    out: _Out,
    instance: Annotated[
        Path | None, typer.Option(help="Grey or palette PNG of instance ids, or a folder, for models that take it.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Image whose style is used, or a folder of images, for models that take one.")
    ] = None,
    seed: _Seed = None,
    samples: _Samples = 1,
    concurrency: _Concurrency = 4,
    *,
    common: _Common,
) -> None:
    """Turn an image, or every image in a folder, into another kind of image: a label map into a facade.

    Example: retouch translate labels.png -o facade.png
    """
    jobs = with_instances_and_references(
        fill_jobs(image, None, out, common.image_format, overwrite=common.files_may_exist or samples > 1),
        image,
        instance,
        reference,
    )
    jobs = with_samples(jobs, samples, overwrite=common.files_may_exist)
    own = {"seed": seed, "samples": samples if samples > 1 else None}
    _fill("translate", jobs, own, common, concurrency)


@expanded
def generate(
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="PATH", help="File to write; several pictures are numbered: OUT-1.png, OUT-2.png …"
        ),
    ],
    seed: _Seed = None,
    count: Annotated[int, typer.Option(min=1, max=16, help="Number of pictures.")] = 1,
    *,
    common: _Common,
) -> None:
    """Generate pictures from random numbers.

    Example: retouch generate -o front.png --count 4 --seed 7
    """
    jobs = generation_jobs(out, common.image_format, count, overwrite=common.files_may_exist)
    _fill("generate", jobs, {"seed": seed, "count": count if count > 1 else None}, common, 1)


def _fill(task: Task, jobs: list[FillJob], own: Mapping[str, object], common: _Common, concurrency: int) -> None:
    from retouch.filling.run import FillRun  # noqa: PLC0415 -- loads httpx

    given = {"model": common.model, **own, "quality": common.quality}
    options = {name: str(value) for name, value in given.items() if value is not None}

    async def run() -> list[FillOutcome]:
        async with common.open(task) as filler:
            return await FillRun(filler, task, options, concurrency, time.monotonic, done).run(jobs)

    if common.missing and not (jobs := missing_jobs(every := jobs)):
        said = f"nothing to do: all {len(every)} results exist already"
        return _print_summary([], 0.0, as_json=True) if common.as_json else typer.echo(said)
    begun = time.monotonic()
    finished: list[FillOutcome] = []
    with _progress_bar(task, len(jobs), shown=not common.as_json, in_process=common.url is None) as advance:

        def done(outcome: FillOutcome) -> None:
            finished.append(outcome)
            advance(outcome)

        try:
            with ending_in_order():
                outcomes = asyncio.run(run())
        except (KeyboardInterrupt, SystemExit):
            made = sum(outcome.error is None for outcome in finished)
            others = "" if common.overwrite else "; --missing makes the others"  # old files would count as made
            typer.echo(f"interrupted: {made} of {len(jobs)} are done{others}", err=True)
            if common.as_json:
                typer.echo(json.dumps(_summarise(finished, time.monotonic() - begun), indent=1))
            raise
    return _print_summary(outcomes, time.monotonic() - begun, as_json=common.as_json)


@contextmanager
def _progress_bar(task: Task, total: int, *, shown: bool, in_process: bool) -> Iterator[Callable[[FillOutcome], None]]:
    from rich.console import Console  # noqa: PLC0415 -- `retouch serve` runs without it
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    from retouch.commands.status_line import status_line  # noqa: PLC0415 -- loads rich

    console = Console(stderr=True)
    if shown and total == 1:
        with status_line("loading the model" if in_process else "waiting for the server", console):
            yield lambda _: None
        return
    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        bar = progress.add_task(task, total=total)
        yield lambda _: progress.advance(bar)


def _print_summary(outcomes: list[FillOutcome], seconds: float, *, as_json: bool) -> None:
    """Print the summary; raises typer.Exit with status 1 if a picture failed."""
    summary = _summarise(outcomes, seconds)
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
    else:
        for line in _failure_lines(summary):
            typer.echo(line, err=True)
        typer.echo(_summary_text(summary))
    if summary["failed"]:
        raise typer.Exit(1)


def _summarise(outcomes: list[FillOutcome], seconds: float) -> dict[str, Any]:
    failed = sum(outcome.error is not None for outcome in outcomes)
    done = len(outcomes) - failed
    return {
        "done": done,
        "failed": failed,
        "seconds": round(seconds, 3),
        "images_per_s": round(done / seconds, 3) if seconds else 0.0,
        "files": [outcome.as_json() for outcome in sorted(outcomes, key=lambda outcome: outcome.job.out)],
    }


def _failure_lines(summary: dict[str, Any]) -> list[str]:
    """Return a line for each failed picture; one for all if all of several failed for the same reason."""
    failed = [(file["image"] or file["out"], file["error"]) for file in summary["files"] if file["error"]]
    if len(failed) == len(summary["files"]) > 1 and len({error for _, error in failed}) == 1:
        return [f"all {len(failed)} pictures: {failed[0][1]}"]
    return [f"{name}: {error.removeprefix(f'{name} ')}" for name, error in failed]


def _summary_text(summary: dict[str, Any]) -> str:
    if len(summary["files"]) == summary["done"] == 1:
        file = summary["files"][0]
        return f"{' '.join(file['outs'])} ({file['model']} on {file['engine']}, {file['seconds']:.2f} s)"
    return "{done} done, {failed} failed in {seconds:.1f} s ({images_per_s:.1f} images/s)".format_map(summary)
