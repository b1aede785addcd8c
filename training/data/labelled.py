"""Data sets whose label maps are files of ids beside the pictures: Cityscapes and ADE20K."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.data.label_maps import stack_labels
from training.data.loading import load_all
from training.data.picture_files import read_picture
from training.errors import DataMissing
from training.run_config import DataConfig


class LabelledFiles(NamedTuple):
    """The files of a picture; without a file of instance ids, connected parts of the classes are the instances."""

    picture: Path
    labels: Path
    instances: Path | None


def load_labelled(data: DataConfig) -> list[NDArray[np.uint8]]:
    """Load every picture with its ids as H×W×6 (`stack_labels`), the shorter side resized to `load_side`.

    Raises:
        DataMissing: there are no pictures, or a file is missing, cannot be decoded or differs from its picture in size.
    """

    def prepare(files: LabelledFiles) -> NDArray[np.uint8]:
        picture = read_picture(files.picture)
        height, width = picture.shape[:2]
        labels = _read_ids(files.labels, (height, width)).astype(np.uint8)
        instances = _read_ids(files.instances, (height, width)) if files.instances else None
        scale = data.load_side / min(height, width)
        return stack_labels(labels, instances, picture, (round(height * scale), round(width * scale)))

    pictures = load_all(prepare, islice(LABELLED[data.layout](data), data.limit or None), data.threads)
    if not pictures:
        raise DataMissing(f"{data.path}: no pictures in layout {data.layout!r}, part {data.split}; is data.path right?")
    return pictures


def _read_ids(path: Path, size: tuple[int, int]) -> NDArray[np.uint16]:
    """Read the ids of a grey, 16-bit or palette PNG, H×W."""
    try:
        with Image.open(path) as image:
            ids = np.asarray(image)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataMissing(
            f"{path}: no map of ids that can be decoded ({error}); the data set has one for it"
        ) from error
    if ids.shape != size:
        raise DataMissing(f"{path}: has the shape {ids.shape}, its picture {size}; ids are one grey number a pixel")
    return ids.astype(np.uint16)


def _cityscapes(data: DataConfig) -> Iterator[LabelledFiles]:
    """Yield leftImg8bit/PART/CITY/NAME_leftImg8bit.png with its gtFine labelIds and instanceIds."""
    for picture in sorted((data.path / "leftImg8bit" / data.split).glob("*/*_leftImg8bit.png")):
        name = picture.name.removesuffix("leftImg8bit.png") + "gtFine"
        folder = data.path / "gtFine" / data.split / picture.parent.name
        yield LabelledFiles(picture, folder / f"{name}_labelIds.png", folder / f"{name}_instanceIds.png")


def _ade20k(data: DataConfig) -> Iterator[LabelledFiles]:
    """Yield images/training/NAME.jpg with annotations/training/NAME.png, as ADEChallengeData2016 has them."""
    part = {"train": "training", "val": "validation"}[data.split]
    for picture in sorted((data.path / "images" / part).glob("*.jpg")):
        yield LabelledFiles(picture, data.path / "annotations" / part / f"{picture.stem}.png", None)


LABELLED: dict[str, Callable[[DataConfig], Iterator[LabelledFiles]]] = {"cityscapes": _cityscapes, "ade20k": _ade20k}
