"""Pairs images with masks and output files, and refuses impossible combinations before any work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from engines.errors import RetouchError

Format = Literal["png", "jpeg", "webp"]
_FORMAT_OF_SUFFIX: dict[str, Format] = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}
_ADDRESS = re.compile(r"(https?:|s3:|file:|data:)/?/?(.*)", re.IGNORECASE)
"""Matches the address of a picture; a Path keeps one of its two slashes."""
_SUFFIX_OF_FORMAT: dict[Format, str] = {"png": ".png", "jpeg": ".jpg", "webp": ".webp"}


class FilesInvalid(RetouchError):
    """The named files do not fit together; nothing was read or written."""


class OutputInvalid(FilesInvalid):
    """The output's name and the format are unknown or contradict each other."""

    exit_status = 2


@dataclass(frozen=True, slots=True)
class FillJob:
    """One picture to make, or several samples of it; `image` is None for generation.

    keeps: whether existing output files are kept when only those of other samples are missing.
    """

    image: Path | None
    mask: Path | None
    out: Path
    format: Format
    samples: int = 1
    instance: Path | None = None
    reference: Path | None = None
    keeps: bool = False

    @property
    def output_files(self) -> list[Path]:
        """Return the files to write: `out`, or out-1, out-2, … for several samples."""
        if self.samples == 1:
            return [self.out]
        return [self.out.with_stem(f"{self.out.stem}-{number}") for number in range(1, self.samples + 1)]


def fill_jobs(
    image: Path, mask: Path | None, out: str | Path, wanted: Format | None, *, overwrite: bool
) -> list[FillJob]:
    """List the pictures to make, in the order of their names.

    Args:
        image: a file, or a folder of files.
        mask: a file for all images, a folder (matched by file stem), or None for a task without masks.
        out: a file, or a folder: one that exists, any path if `image` is a folder, or text that ends in a slash.
        wanted: format of the output; None for the one of `out`'s suffix, or png in a folder.
        overwrite: whether existing files may be replaced.

    Raises:
        FilesInvalid: files are missing, ambiguous, already there, not regular or of an unknown format; the message
            names them.
    """
    pairs = pair_images(image, mask)
    into_folder, out = image.is_dir() or _is_folder(out), Path(out)
    if into_folder and out.exists() and not out.is_dir():
        raise FilesInvalid(f"{out} is a file, but the results need a folder; name one with -o")
    output_format = (wanted or "png") if into_folder else _format_of(out, wanted)
    jobs = [
        FillJob(one, its_mask, _out_path(out, one, output_format, into_folder), output_format)
        for one, its_mask in pairs
    ]
    if into_folder:
        _refuse_files(
            "images of the same name would overwrite each other", _repeated_names(job.out.name for job in jobs)
        )
    _refuse_existing(jobs, overwrite=overwrite)
    return jobs


def generation_jobs(out: str | Path, wanted: Format | None, count: int, *, overwrite: bool) -> list[FillJob]:
    """Return a list of the one job that generates pictures; in a folder its files are called `generated`.

    Raises:
        FilesInvalid: the output has an unknown format, or is there already.
    """
    into_folder, out = _is_folder(out), Path(out)
    output_format = (wanted or "png") if into_folder else _format_of(out, wanted)
    file = out / f"generated{_SUFFIX_OF_FORMAT[output_format]}" if into_folder else out
    return with_samples([FillJob(None, None, file, output_format)], count, overwrite=overwrite)


def with_samples(jobs: list[FillJob], samples: int, *, overwrite: bool) -> list[FillJob]:
    """Set the number of samples of each job.

    Raises:
        FilesInvalid: an output file exists already.
    """
    jobs = [replace(job, samples=samples) for job in jobs]
    _refuse_existing(jobs, overwrite=overwrite)
    return jobs


def missing_jobs(jobs: list[FillJob]) -> list[FillJob]:
    """Return the jobs of which a result file is missing, as after an interrupted run."""
    return [replace(job, keeps=True) for job in jobs if not all(out.exists() for out in job.output_files)]


def with_instances_and_references(
    jobs: list[FillJob], image: Path, instance: Path | None, reference: Path | None = None
) -> list[FillJob]:
    """Add instance maps and references to the jobs: one for all, or a folder with the same file names.

    Raises:
        FilesInvalid: a file is missing or ambiguous.
    """
    maps, references = pair_images(image, instance, "instance map"), pair_images(image, reference, "reference")
    return [
        replace(job, instance=its_map, reference=its_reference)
        for job, (_, its_map), (_, its_reference) in zip(jobs, maps, references, strict=True)
    ]


def pair_images(image: Path, mask: Path | None, what: str = "mask") -> list[tuple[Path, Path | None]]:
    """Pair each image with its mask (or other file, named by `what`); arguments as for `fill_jobs`.

    Raises:
        FilesInvalid: there are no images, or a mask is missing or ambiguous.
    """
    images = _list_images(image)
    if mask is None:
        return [(one, None) for one in images]
    masks = _masks_by_stem(mask, images, what)
    return [(one, masks[one.stem]) for one in images]


def _list_images(image: Path) -> list[Path]:
    _check_exists(image)
    images = _pictures_in(image) if image.is_dir() else [image]
    if not images:
        raise FilesInvalid(f"no images in {image}; files that end in {', '.join(_FORMAT_OF_SUFFIX)} count")
    return images


def _check_exists(path: Path) -> None:
    if path.exists():
        return
    if str(path) == "-":
        raise FilesInvalid("pictures are not read from standard input: name a file")
    if address := _ADDRESS.match(str(path)):
        raise FilesInvalid(f"{address[1]}//{address[2]} is an address: download the picture, and name the file")
    raise FilesInvalid(f"{path} does not exist")


def _masks_by_stem(mask: Path, images: list[Path], what: str) -> dict[str, Path]:
    _check_exists(mask)
    if not mask.is_dir():
        return {image.stem: mask for image in images}
    found = _pictures_in(mask)
    _refuse_files(f"{what}s of the same name in {mask}", _repeated_names(path.stem for path in found))
    masks = {path.stem: path for path in found}
    _refuse_files(
        f"no {what} of the same name in {mask} for", [str(image) for image in images if image.stem not in masks]
    )
    return masks


def _pictures_in(folder: Path) -> list[Path]:
    """Return the pictures of a folder by name; hidden files, such as a Mac's ._a.jpg beside a.jpg, are skipped.

    A dangling link is returned, so that its picture is reported as failed instead of being left out silently.
    """
    shown = (path for path in folder.iterdir() if not path.name.startswith("."))
    named = (path for path in shown if path.suffix.lower() in _FORMAT_OF_SUFFIX)
    return sorted(path for path in named if path.is_file() or not path.exists())


def _is_folder(out: str | Path) -> bool:
    """Return whether `out` is a folder, or means one by a slash at its end, which a Path does not keep."""
    return str(out).endswith("/") or Path(out).is_dir()


def _format_of(out: Path, wanted: Format | None) -> Format:
    if str(out) == "-":
        raise OutputInvalid("pictures are not written to standard output: name a file with -o")
    by_suffix = _FORMAT_OF_SUFFIX.get(out.suffix.lower())
    if by_suffix is None and wanted is None:
        raise OutputInvalid(f"{out} does not end in {', '.join(_FORMAT_OF_SUFFIX)}; add --format png, jpeg or webp")
    if by_suffix and wanted and by_suffix != wanted:
        raise OutputInvalid(f"{out} ends in {out.suffix} and --format is {wanted}; make them agree")
    return wanted or by_suffix or "png"


def _out_path(out: Path, image: Path, output_format: Format, into_folder: bool) -> Path:
    return out / (image.stem + _SUFFIX_OF_FORMAT[output_format]) if into_folder else out


def _refuse_existing(jobs: list[FillJob], *, overwrite: bool) -> None:
    existing = [out for job in jobs for out in job.output_files if out.exists()]
    # writing replaces an existing file, so root would replace /dev/null for all programs
    if irregular := [str(out) for out in existing if not out.is_file()]:
        raise FilesInvalid(f"{_listed(irregular)} {_verb(irregular, 'is', 'are')} not a file; name another -o")
    if existing and not overwrite:
        several = sum(len(job.output_files) for job in jobs) > 1
        missing = "--missing to make only the others, " if several else ""
        raise FilesInvalid(
            f"{_listed([str(out) for out in existing])} {_verb(existing, 'exists', 'exist')} already; add {missing}"
            f"--overwrite to replace {_verb(existing, 'it', 'them')}, or name another -o"
        )


def _verb(found: Sequence[object], one: str, several: str) -> str:
    return one if len(found) == 1 else several


def _repeated_names(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _refuse_files(what: str, files: Iterable[str]) -> None:
    if names := list(files):
        raise FilesInvalid(f"{what}: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
