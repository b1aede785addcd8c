"""Collects photographs: reads each source, screens its pictures, drops duplicates, writes shards and a manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import simplejpeg

from training.errors import DataMissing
from training.gather.near_duplicates import NearDuplicateSet
from training.gather.pictures import EncodedPicture, read_pictures
from training.gather.recipe import Recipe, Source
from training.gather.screening import Rejected, ScreenedPicture, crops_for_fingerprints, decode, fingerprint, screen
from training.gather.shards import ShardWriter

MANIFEST_FILE = "photos.json"
_AT_ONCE = 64
"""Files decoded at once: enough to keep the threads busy, few enough for the memory."""
_SIDE_STEP = 128
"""Kept pictures are counted by their shorter side, rounded down to a multiple of this."""
_FINGERPRINT_SIDE = 288
"""Shorter side in pixels to which held-out pictures are decoded; a fingerprint needs 32."""


class KeptPicture(NamedTuple):
    """A picture to be written, as JPEG."""

    name: str
    jpeg: bytes


def gather(
    recipe: Recipe,
    root: Path,
    output: Path,
    held_out: Iterable[Path] = (),
    report: Callable[[str, Counter[str], list[str]], None] = lambda _name, _counts, _broken: None,
) -> dict[str, Any]:
    """Write shards of the recipe's pictures and their manifest into `output`; returns the manifest.

    Args:
        recipe: the sources and the output format.
        root: the folder that the sources' paths are relative to.
        output: the folder for `photos-000.tar`, … and photos.json; those of an earlier run are replaced at the end.
        held_out: folders of pictures that must not be trained on, in any crop.
        report: called after each source with its name, its counts, and the paths of its broken files.

    Raises:
        DataMissing: a source is missing or empty, or no picture is left.
        OSError: the output cannot be written; what an earlier run left there is unchanged.
    """
    output.mkdir(parents=True, exist_ok=True)
    excluded = _fingerprints(held_out, recipe.held_out_bits)
    seen = NearDuplicateSet(recipe.duplicate_bits)
    kept: list[KeptPicture] = []
    counts: dict[str, Counter[str]] = {}
    for source in recipe.source:
        counts[source.name] = Counter()
        broken: list[str] = []
        files = _screen_files(read_pictures(source, root, recipe.seed), recipe, source.crops, broken)
        kept += _kept_pictures(source.name, files, recipe.jpeg_quality, (excluded, seen), counts[source.name])
        report(source.name, counts[source.name], broken)
    if not kept:
        raise DataMissing(f"no picture of any source passed, so {output} stays as it is; the counts give the reasons")
    # mix the sources, so that each shard is a sample of all of them
    Random(f"{recipe.seed} order").shuffle(kept)  # noqa: S311 -- not for security
    with TemporaryDirectory(prefix=".gather-", dir=output) as staging:
        shards = _write_shards(kept, recipe, Path(staging))
        manifest = _manifest(recipe, counts, shards)
        written = Path(staging) / MANIFEST_FILE
        written.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
        _put_in_place(shards, written, output)
    return manifest


def _kept_pictures(
    source: str,
    files: Iterator[list[ScreenedPicture] | Rejected],
    quality: int,
    known: tuple[NearDuplicateSet, NearDuplicateSet],
    counts: Counter[str],
) -> Iterator[KeptPicture]:
    excluded, seen = known
    for number, screened in enumerate(files):
        counts["files"] += 1
        if isinstance(screened, str):
            counts[screened] += 1
            continue
        for part, (pixels, mark) in enumerate(screened):
            reason = "held out" if mark in excluded else "seen before" if mark in seen else "kept"
            counts[reason] += 1
            if reason == "kept":
                seen.add(mark)
                counts[f"side {min(pixels.shape[:2]) // _SIDE_STEP * _SIDE_STEP}"] += 1
                jpeg = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality, colorsubsampling="420")
                yield KeptPicture(f"{source}/{number:05}_{part}.jpg", jpeg)


def _screen_files(
    files: Iterator[EncodedPicture], recipe: Recipe, crops: int, broken: list[str]
) -> Iterator[list[ScreenedPicture] | Rejected]:
    """Screen the files in order; the paths of files that are not pictures are appended to `broken`."""
    with ThreadPoolExecutor() as threads:  # decoders release the GIL
        while batch := list(islice(files, _AT_ONCE)):
            results = threads.map(lambda file: screen(file.data, recipe, crops), batch)
            for file, screened in zip(batch, results, strict=True):
                if screened == "broken":
                    broken.append(file.path)
                yield screened


def _fingerprints(folders: Iterable[Path], max_bits: int) -> NearDuplicateSet:
    """Compute the fingerprints of all pictures under the folders, in every crop that another data set may have.

    Raises:
        DataMissing: a folder is missing, or none of its pictures can be read, so that nothing would be held out.
    """
    known = NearDuplicateSet(max_bits)
    for folder in folders:
        if not folder.is_dir():
            raise DataMissing(f"{folder}: no such folder of held-out pictures; correct --held-out, or leave it out")
        readable = 0
        for file in read_pictures(Source(name="held-out", path=folder, licence=""), Path(), seed=0):
            if (pixels := decode(file.data, _FINGERPRINT_SIDE)) is not None:
                readable += 1
                for view in crops_for_fingerprints(pixels):
                    known.add(fingerprint(view))
        if not readable:
            raise DataMissing(f"{folder}: none of the pictures to hold out can be read; copy them there again")
    return known


def _put_in_place(shards: list[Path], manifest: Path, output: Path) -> None:
    """Replace an earlier run's files, the manifest last: a folder without one may hold the shards of two runs."""
    (output / MANIFEST_FILE).unlink(missing_ok=True)
    for stale in output.glob("photos-*.tar"):
        stale.unlink()
    for path in (*shards, manifest):
        path.rename(output / path.name)


def _write_shards(kept: list[KeptPicture], recipe: Recipe, output: Path) -> list[Path]:
    with ShardWriter(output, "photos", int(recipe.shard_mib * 2**20)) as writer:
        for name, jpeg in kept:
            writer.add(name, jpeg)
    return writer.paths


def _manifest(recipe: Recipe, counts: dict[str, Counter[str]], shards: list[Path]) -> dict[str, Any]:
    return {
        "pictures": sum(count["kept"] for count in counts.values()),
        "recipe": recipe.model_dump(mode="json", exclude={"source"}),
        "sources": [
            {"name": source.name, "from": source.path.as_posix(), "licence": source.licence, **counts[source.name]}
            for source in recipe.source
        ],
        "shards": {path.name: path.stat().st_size for path in shards},
    }
