"""One sweep, from a folder of pictures to figures and, if requested, to rules in the manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from engines.engine_choice import EngineOptions, open_engine
from engines.errors import ModelError, RetouchError
from engines.files.atomic import replace_file
from engines.files.outputs import check_output
from engines.fill_rules import FillRules
from engines.manifest import MANIFEST_FILE, FixedSize, Manifest, SizeRule, Task, read_manifest
from retouch.sweep.candidates import rule_candidates, served_strategies
from retouch.sweep.cases import BANDS, Case, check_pictures, draw_cases, find_pictures
from retouch.sweep.choosing import choose_rules
from retouch.sweep.measuring import CaseMeasurements, measure
from retouch.sweep.report import means_by_cell, totals_by_size
from training.evaluate.shapes import KINDS
from training.losses.lpips_distance import load_lpips


class SweepImpossible(RetouchError):
    """The model has no strategies to compare, or the figures or rules cannot be written."""


@dataclass(frozen=True)
class SweepRequest:
    """The parameters of one sweep.

    model: the model's folder.
    sizes: in pixels; up to the largest tile the side of square crops, above it the longer side of whole pictures;
        empty for the smallest tile, the largest tile and twice that.
    per_cell: pictures for each size, coverage and kind of hole.
    choose: whether to try all candidates and choose rules; otherwise only the strategies of requests are compared.
    """

    model: Path
    pictures: Path
    lpips_features: Path
    sizes: tuple[int, ...] = ()
    per_cell: int = 8
    seed: int = 0
    choose: bool = True
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True)
class SweepResult:
    """The results of a sweep; `rules` is None if none were to be chosen."""

    manifest: Manifest
    rows: list[CaseMeasurements]
    rules: FillRules | None
    report: dict[str, Any]


Progress = Callable[[Iterator[CaseMeasurements], int], Iterator[CaseMeasurements]]


def sweep(request: SweepRequest, progress: Progress, now: Callable[[], float], today: date) -> SweepResult:
    """Fill and measure all cases.

    Raises:
        SweepImpossible: the folder has no model, or the model does not fill holes, or fills every hole alike.
        TrainingError, ModelError, EngineError: pictures, features or model cannot be used; the message says why.
    """
    if not _manifest_of(request.model).is_file():
        raise SweepImpossible(f"{request.model} is not a model version: name its folder, as in models/photos/5")
    manifest = read_manifest(request.model)
    size = manifest.size
    lpips = load_lpips(request.lpips_features)
    paths = find_sweepable(manifest.key, manifest.task, size, request)
    candidates = served_strategies(size) | (rule_candidates(size) if request.choose else {})
    request = replace(request, sizes=request.sizes or default_sizes(size))
    total = len(request.sizes) * len(BANDS) * len(KINDS) * request.per_cell
    with closing(open_engine(request.model, manifest, request.engine)) as engine:
        cases = chain.from_iterable(_draw_cases(request, paths, size, side) for side in request.sizes)
        rows = list(progress(measure(cases, candidates, engine, lpips, now), total))
        engine_name = f"{engine.name} {engine.precision}"
    rules = None
    if request.choose:
        chosen = choose_rules(rows, {name: candidate.rule for name, candidate in candidates.items() if candidate.rule})
        rules = FillRules(
            measured=_describe_measurement(request, len(rows), len({row.name for row in rows}), today), rules=chosen
        )
    report = {
        "model": manifest.key,
        "engine": engine_name,
        "pictures": request.pictures.name,
        "totals": totals_by_size(rows),
        "cells": means_by_cell(rows),
        "rules": rules.model_dump(mode="json") if rules else None,
        "rows": [row.as_json() for row in rows],
    }
    return SweepResult(manifest, rows, rules, report)


def check_outputs(figures: Path | None, rules_of: Path | None) -> None:
    """Check before a sweep, which may take hours, that its figures and its rules can be written.

    Args:
        figures: the file of the figures, whose folder is made.
        rules_of: the model whose manifest gets the rules.

    Raises:
        SweepImpossible: one of them cannot be written; the message says which.
    """
    with report_write_errors(figures):
        if figures is not None:
            check_output(figures)
    manifest = None if rules_of is None else _manifest_of(rules_of)
    with report_write_errors(manifest):
        if manifest is not None and manifest.exists():  # a folder that is no model is refused by the sweep
            TemporaryFile(dir=manifest.parent).close()  # a new file will replace it


def find_sweepable(what: str, task: Task, size: SizeRule, request: SweepRequest) -> list[Path]:
    """Find the pictures of a sweep over a model, which `what` names in messages; nothing is measured.

    Raises:
        SweepImpossible: the model has one candidate only.
        DataMissing: there are no pictures, or one is broken, or none is large enough for one of the sizes.
    """
    if task != "inpaint" or (isinstance(size, FixedSize) and (size.hole or size.fit == "resize")):
        raise SweepImpossible(f"{what} has only one strategy: there is nothing to sweep")
    paths = find_pictures(request.pictures, request.seed)
    framings = [(side, _is_square(side, size)) for side in request.sizes or default_sizes(size)]
    check_pictures(paths, framings, len(BANDS) * len(KINDS) * request.per_cell)
    return paths


@contextmanager
def report_write_errors(path: Path | None) -> Iterator[None]:
    """Turn an OSError of the block into SweepImpossible."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise SweepImpossible(f"{path} cannot be written ({why}); name a file elsewhere, or let this user") from error


def _manifest_of(directory: Path) -> Path:
    """Return the manifest's path with links resolved, so that the file is replaced and not a link to it."""
    return Path(os.path.realpath(directory / MANIFEST_FILE))


def write_rules(directory: Path, rules: FillRules) -> bool:
    """Write the rules into a model's manifest; everything else in it is unchanged.

    Returns:
        Whether the same users can read it as before; see `replace_file`.

    Raises:
        ModelError: the manifest cannot be written.
    """
    manifest = read_manifest(directory)
    changed = manifest.model_copy(update={"size": manifest.size.model_copy(update={"auto": rules})})
    path = _manifest_of(directory)
    try:
        return replace_file(path, changed.model_dump_json(indent=2).encode() + b"\n")
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror}); is the folder read-only?") from error


def default_sizes(rule: SizeRule) -> tuple[int, ...]:
    """Return the sides of the smallest and the largest square tile, and twice the latter, ascending."""
    sides = [min(bucket) for bucket in rule.tile_sizes()]
    return tuple(sorted({min(sides), max(sides), 2 * max(sides)}))


def _draw_cases(request: SweepRequest, paths: list[Path], size: SizeRule, side: int) -> Iterator[Case]:
    return draw_cases(paths, side, _is_square(side, size), request.per_cell, request.seed)


def _is_square(side: int, rule: SizeRule) -> bool:
    """Return whether square crops of that side are cut: up to the largest tile."""
    return side <= max(max(bucket) for bucket in rule.tile_sizes())


def _describe_measurement(request: SweepRequest, cases: int, pictures: int, today: date) -> str:
    sizes = ", ".join(map(str, request.sizes))
    return f"{cases} holes in {pictures} pictures of {sizes} pixels ({request.pictures.name}), LPIPS AlexNet, {today}"
