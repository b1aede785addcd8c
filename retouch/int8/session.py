"""One quantisation, from an FP32 graph and a folder of pictures to an INT8 graph that has passed its gate."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from engines.engine_choice import EngineOptions, open_engine
from engines.files.outputs import check_output
from engines.manifest import ONNX_FILE, Manifest, Quantisation, QuantisationFigures
from engines.onnxrt import OnnxRuntimeEngine
from export.checkpoint import sha256_of
from export.errors import OptionInvalid
from export.int8.calibrating import Calibrate, Feed, calibrate
from export.int8.gate import MEAN_DB, WORST_DB, require_quality
from export.int8.keeping import choose_layers
from retouch.int8.judging import Sheet, judge
from retouch.int8.pictures import PictureSplit, cases, split_pictures
from service.core.pictures import Picture
from service.devices.cpu import samples_to_inputs
from service.imaging.crops import plan_crops
from service.imaging.preprocess import inpaint_sample
from training.losses.lpips_distance import Lpips, load_lpips


@dataclass(frozen=True)
class Quantiser:
    """Makes INT8 graphs, after `prepare` has checked its inputs.

    split: the pictures. lpips: the distance of the gate. sheet: file for a contact sheet of the gate's first
    fills; None for none. engine: options of the gate's engine. calibrate: chooses the scales of all layers.
    """

    split: PictureSplit
    lpips: Lpips
    sheet: Path | None = None
    engine: EngineOptions = field(default_factory=EngineOptions)
    calibrate: Calibrate = calibrate

    def __call__(self, graph: Path, target: Path, manifest: Manifest, notify: Callable[[str], None]) -> Quantisation:
        """Write the INT8 form of a graph.

        Args:
            graph: the FP32 graph, in a folder for temporary files.
            target: the file to write.
            manifest: the manifest of the FP32 graph.
            notify: called with a line for each step.

        Raises:
            QuantisationRefused: its fills differ too much from those of FP32; no file is left.
        """
        split = self.split
        with tempfile.TemporaryDirectory(dir=graph.parent) as folder:
            scratch = Path(folder) / "tried.onnx"
            notify(f"calibrating on {len(split.calibrated)} pictures of {split.folder}")
            scales = self.calibrate(graph, lambda: _feeds(split, manifest, "calibrating"), scratch, notify)
            notify("choosing layers on the same pictures with other holes")
            chosen = choose_layers(
                graph,
                scales,
                lambda: _feeds(split, manifest, "choosing"),
                scratch,
                (MEAN_DB, WORST_DB),
                notify,
            )
            scratch.unlink(missing_ok=True)
            onnx.save(chosen.model, Path(folder) / ONNX_FILE)
            notify(f"judging on {len(split.judging)} other pictures")
            figures = self._figures(graph, Path(folder), manifest, notify)
            require_quality(figures, chosen.layers)
            (Path(folder) / ONNX_FILE).rename(target)
        kept = tuple(layer for layer in chosen.layers if layer.name in chosen.kept)
        return Quantisation(
            calibration=split.folder.resolve().name,
            calibration_sha256=split.sha256,
            pictures=len(split.calibrated),
            seed=split.seed,
            int8_layers=len(chosen.layers) - len(kept),
            kept=kept,
            gate=figures,
        )

    def _figures(
        self, graph: Path, folder: Path, manifest: Manifest, notify: Callable[[str], None]
    ) -> QuantisationFigures:
        """Fill the gate's pictures with the FP32 graph and with that in `folder`; write the sheet."""
        whole = folder / "fp32"
        whole.mkdir()
        (whole / ONNX_FILE).hardlink_to(graph)
        int8 = manifest.model_copy(update={"precision": "int8", "onnx_sha256": sha256_of(folder / ONNX_FILE)})
        sheet, judging = Sheet(), cases(self.split.judging, manifest.size, f"{self.split.seed} judging")
        options = replace(self.engine, cache_dir=folder / "cache")
        with (
            closing(OnnxRuntimeEngine(whole, manifest, threads=options.threads)) as reference,
            closing(open_engine(folder, int8, options)) as engine,
        ):
            figures = judge(judging, reference, engine, self.lpips, sheet, notify)
        if self.sheet is not None:
            sheet.picture().save(self.sheet)
        return figures


def prepare(calibration: Path, lpips_features: Path | None, sheet: Path | None = None) -> Quantiser:
    """Check everything that a quantisation needs before it starts, because calibration takes minutes.

    Raises:
        CalibrationInvalid: there are too few pictures, or one cannot be read.
        OSError: the sheet cannot be written.
        OptionInvalid: no features for LPIPS were named.
        DataMissing: the features cannot be read.
    """
    if lpips_features is None:
        raise OptionInvalid("INT8 is judged by LPIPS: name AlexNet's features with --lpips-features")
    if sheet is not None and (sheet.suffix.lower() != ".png" or not sheet.parent.is_dir()):
        raise OptionInvalid(f"--sheet {sheet}: name a .png file in a folder that exists")
    if sheet is not None:
        check_output(sheet)
    return Quantiser(split_pictures(calibration, seed=0), load_lpips(lpips_features), sheet)


def _feeds(split: PictureSplit, manifest: Manifest, purpose: str) -> Iterator[Feed]:
    """Yield the inputs of the calibration pictures as the service would make them, one tile at a time."""
    for case in cases(split.calibrated, manifest.size, f"{split.seed} {purpose}"):
        for crop in plan_crops(case.hole, manifest.size, "auto"):
            yield samples_to_inputs(manifest, [inpaint_sample(Picture(case.truth), case.hole, crop, manifest)])
