"""`retouch bench pipeline`: measures the pipeline variants from encoded picture to encoded result, without HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engines.errors import ModelNotFound
from engines.terminal.folders import folder_flag
from retouch.filling.jobs import pair_images

if TYPE_CHECKING:
    from retouch.bench.pipeline.run import VariantResult, Workload
    from service.core.settings import Settings


def bench_pipeline(  # noqa: PLR0913, PLR0917 -- each is a flag
    images: Annotated[Path, typer.Option(help="Image, or folder of images.")],
    masks: Annotated[
        Path | None,
        typer.Option(help="Mask, or folder of masks. With masks inpainting is measured, otherwise translation."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model, as NAME or NAME/VERSION. By default that of the task.")
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, help="Number of images for each variant; those of the folder are repeated.")
    ] = 50,
    max_batch_size: Annotated[
        int | None, typer.Option(min=1, max=256, help="Largest number of samples in a batch, in variants that batch.")
    ] = None,
    models_dir: Annotated[Path | None, folder_flag("Model repository (RETOUCH_MODELS_DIR).")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Runtime: auto, trt, inductor, onnxrt-cuda, openvino, onnxrt or fake (RETOUCH_ENGINE)."),
    ] = None,
    engine_cache_dir: Annotated[Path | None, folder_flag("Engine cache (RETOUCH_ENGINE_CACHE_DIR).")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for the figures as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a plot (.png, .svg or .pdf).")] = None,
) -> None:
    """Measure the pipeline without HTTP, in this process, in variants that each have one more optimisation.

    The first computes and saves image by image, the last overlaps batches on a
    GPU. Variants that cannot run here say why.

    Example: retouch bench pipeline --images photos --masks masks
    """
    from rich.console import Console  # noqa: PLC0415 -- `retouch serve` runs without it

    from retouch.bench.pipeline.report import print_rows, save_rows_plot  # noqa: PLC0415 -- loads matplotlib
    from retouch.bench.report_files import check_writable, report_write_errors  # noqa: PLC0415 -- loads hdrh
    from service.core.settings import load_settings  # noqa: PLC0415 -- loads pydantic

    check_writable(json_file, plot)
    flags: dict[str, Any] = {
        "max_batch_size": max_batch_size,
        "models_dir": models_dir,
        "engine": engine,
        "engine_cache_dir": engine_cache_dir,
        "log_level": "warning",
    }
    settings = load_settings({name: value for name, value in flags.items() if value is not None})
    workload = _read_workload(settings, images, masks, model, count)
    title, rows = _measure_all(settings, workload, Console(stderr=True))
    print_rows(rows, Console(), title)
    if json_file:
        document = json.dumps({"title": title, "rows": [row.as_json() for row in rows]}, indent=1)
        with report_write_errors(json_file):
            json_file.write_text(document + "\n")
    if plot:
        with report_write_errors(plot):
            save_rows_plot(rows, plot, title)


def _read_workload(settings: Settings, images: Path, masks: Path | None, model: str | None, count: int) -> Workload:
    """Read the pictures of a workload; raises FilesInvalid if there are no images or a mask is missing."""
    from retouch.bench.pipeline.run import Workload  # noqa: PLC0415 -- loads the service

    pairs = [pair for _, pair in zip(range(count), _repeat_forever(pair_images(images, masks)), strict=False)]
    own_masks = [mask.read_bytes() for _, mask in pairs if mask is not None] or None
    default = settings.translate_model if masks is None else settings.inpaint_model
    return Workload(model or default, [image.read_bytes() for image, _ in pairs], own_masks)


def _repeat_forever(pairs: Any) -> Any:
    while True:
        yield from pairs


def _measure_all(settings: Settings, workload: Workload, console: Any) -> tuple[str, list[VariantResult]]:
    from engines.repository.listing import list_versions, read_manifest_of  # noqa: PLC0415 -- loads pydantic
    from retouch.bench.pipeline.run import VariantResult, measure  # noqa: PLC0415 -- loads the service
    from retouch.bench.pipeline.variants import variants_for  # noqa: PLC0415 -- the same
    from service.batching.local_backend import make_engine_opener  # noqa: PLC0415 -- the same
    from service.telemetry.logs import configure_logs  # noqa: PLC0415 -- the same

    configure_logs(settings)
    name, _, version = workload.model.partition("/")
    found = list_versions(settings.models_dir)
    keys = sorted(key for key in found if key.name == name and (not version or str(key.version) == version))
    if not keys:
        raise ModelNotFound(
            f"no model {workload.model} in {settings.models_dir}; export one, or name another with --model"
        )
    directory = found[keys[-1]].directory
    engine = make_engine_opener(settings)(directory, read_manifest_of(keys[-1], directory))
    try:
        variants = variants_for(engine)
        title = (
            f"{len(workload.images)} pictures through {keys[-1]} on {engine.name} {engine.precision} ({engine.device})"
        )
    finally:
        engine.close()
    rows = []
    for variant, reason in variants:
        with console.status(variant.name):
            rows.append(VariantResult(variant.name, reason) if reason else measure(settings, workload, variant))
    return title, rows
