"""Finds and decodes training pictures: plain folders, tar shards, CelebA, CelebA-HQ, Places, side-by-side pairs.

A picture is H×W×3 uint8 RGB; a pair is H×W×6, the input followed by the target. If the input is a label map, its three
channels are the class and the two bytes of the instance id.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.data.label_maps import facade_labels, stack_labels
from training.data.labelled import LABELLED, load_labelled
from training.data.loading import load_all
from training.data.picture_files import SUFFIXES, picture_paths, shard_paths
from training.errors import DataMissing
from training.run_config import PAIRED_LAYOUTS, DataConfig

Picture = NDArray[np.uint8]
_SPLITS = {"train": "0", "val": "1"}
_CELEBA_NUMBERS = {"train": range(162770), "val": range(162770, 182637)}
"""Indices of CelebA's pictures by split, from 0, as in list_eval_partition.txt; the remaining ones are for tests."""


def load_pictures(data: DataConfig) -> list[Picture]:
    """Load every picture of a data set in a fixed order, decoded by threads and resized as configured.

    Raises:
        DataMissing: the folder has no pictures, files cannot be decoded, or a list of the layout is missing.
    """
    if data.layout in LABELLED:
        return load_labelled(data)
    files = islice(_LAYOUTS[data.layout](data), data.limit or None)
    prepare = {"pairs": _prepare_pair, "facades": _prepare_facade}.get(data.layout, _prepare_single)

    def decode(item: tuple[str, Callable[[], bytes]]) -> Picture:
        name, read = item
        try:
            content = read()
        except OSError as error:
            raise DataMissing(f"{name}: cannot be read ({error.strerror}); copy it again, or remove it") from error
        return prepare(_decode_picture(content, name), data)

    pictures = load_all(decode, files, data.threads)
    if not pictures:
        raise DataMissing(f"{data.path}: no pictures in layout {data.layout!r}; is data.path right?")
    return pictures


def validation_pictures(data: DataConfig) -> list[Picture]:
    """Load the pictures of `data.validation`, cropped to centre squares of side `crop`; empty if it is not set.

    Pairs are first resized to that side. For Cityscapes and ADE20K `data.validation` is the folder of the data set,
    whose split `val` is loaded.

    Raises:
        DataMissing: as `load_pictures`.
    """
    if data.validation is None:
        return []
    paired = data.layout in PAIRED_LAYOUTS
    layout = data.layout if paired else "folder"
    changed = {"path": data.validation, "layout": layout, "limit": data.validation_limit, "split": "val"}
    own = data.model_copy(update=changed | ({"load_side": data.crop} if paired else {}))
    return [_crop_centre(picture, data.crop) for picture in load_pictures(own)]


def _crop_centre(picture: Picture, side: int) -> Picture:
    top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
    return picture[top : top + side, left : left + side]


Item = tuple[str, Callable[[], bytes]]


def picture_files(folder: Path) -> list[Path]:
    """List all pictures under a folder, sorted by path.

    Raises:
        DataMissing: there is no such folder.
    """
    if not folder.is_dir():
        raise DataMissing(f"{folder}: no such folder")
    return picture_paths(folder)


def _from_folder(data: DataConfig) -> Iterator[Item]:
    return ((str(path), path.read_bytes) for path in picture_files(data.path))


def _from_shards(data: DataConfig) -> Iterator[Item]:
    """Yield the members of the shards in order, shards sorted by name; bytes are read here, one after another."""
    shards = [data.path] if data.path.suffix == ".tar" else shard_paths(data.path)
    for shard in shards:
        yield from _read_shard_members(shard)


def _read_shard_members(shard: Path) -> Iterator[Item]:
    try:
        with tarfile.open(shard, "r|") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None and Path(member.name).suffix.lower() in SUFFIXES:
                    yield f"{shard}:{member.name}", _return_constant(file.read())
    except (OSError, tarfile.TarError) as error:
        raise DataMissing(f"{shard}: not a readable tar ({error}); copy it again") from error


def _return_constant(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def _from_celeba(data: DataConfig) -> Iterator[Item]:
    """Yield img_align_celeba/000001.jpg …, split by list_eval_partition.txt (or .csv): 0 train, 1 val, 2 test."""
    lists = [data.path / "list_eval_partition.txt", data.path / "list_eval_partition.csv"]
    listed = next((path for path in lists if path.is_file()), None)
    if listed is None:
        raise DataMissing(f"{lists[0]}: does not exist; CelebA's partition list belongs beside img_align_celeba")
    for line in listed.read_text("utf-8").splitlines():
        name, _, part = line.replace(",", " ").partition(" ")
        if part.strip() == _SPLITS[data.split]:
            path = data.path / "img_align_celeba" / name
            yield str(path), path.read_bytes


def _from_celeba_hq(data: DataConfig) -> Iterator[Item]:
    """Yield CelebA-HQ-img/0.jpg … of CelebAMask-HQ, split like the CelebA pictures from which they were made."""
    listed = data.path / "CelebA-HQ-to-CelebA-mapping.txt"
    if not listed.is_file():
        raise DataMissing(f"{listed}: does not exist; the mapping of CelebAMask-HQ belongs beside CelebA-HQ-img")
    for line in listed.read_text("utf-8").splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0].isdigit() and int(fields[1]) in _CELEBA_NUMBERS[data.split]:
            path = data.path / "CelebA-HQ-img" / f"{fields[0]}.jpg"
            yield str(path), path.read_bytes


def _from_places(data: DataConfig) -> Iterator[Item]:
    """Yield Places365-Standard: data_256 or data_large (train, a folder per letter), val_256 or val_large."""
    stem = "data" if data.split == "train" else "val"
    names = [f"{stem}_{size}{end}" for size in ("256", "large") for end in ("", "_standard")]
    folder = next((data.path / name for name in names if (data.path / name).is_dir()), None)
    if folder is None:
        raise DataMissing(f"{data.path}: holds none of {', '.join(names)}, as Places365-Standard does")
    return ((str(path), path.read_bytes) for path in picture_files(folder))


_LAYOUTS: dict[str, Callable[[DataConfig], Iterator[Item]]] = {
    "folder": _from_folder,
    "pairs": _from_folder,
    "facades": _from_folder,
    "shards": _from_shards,
    "celeba": _from_celeba,
    "celeba_hq": _from_celeba_hq,
    "places": _from_places,
}


def _decode_picture(content: bytes, name: str) -> Picture:
    encoded = np.frombuffer(content, np.uint8)
    bgr = cv2.imdecode(encoded, cv2.IMREAD_COLOR) if encoded.size else None
    if bgr is None:
        raise DataMissing(f"{name}: not a picture that can be decoded; remove it")
    return _as_uint8(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB))


def _prepare_single(picture: Picture, data: DataConfig) -> Picture:
    """Shrink by area averaging to `load_side`, or enlarge bicubically to `crop`; a picture is never resampled twice."""
    height, width = picture.shape[:2]
    shorter = min(height, width)
    side = min(max(shorter, data.crop), data.load_side)
    if side == shorter:
        return picture
    size = (max(side, round(width * side / shorter)), max(side, round(height * side / shorter)))
    return _resize(picture, size, cv2.INTER_AREA if side < shorter else cv2.INTER_CUBIC)


def _prepare_pair(picture: Picture, data: DataConfig) -> Picture:
    """Resize both halves to `load_side` squared with Pillow's bicubic filter, as upstream does; input first."""
    return np.concatenate([_resize_to_square(half, data.load_side) for half in _halves(picture, data)], axis=2)


def _prepare_facade(picture: Picture, data: DataConfig) -> Picture:
    """Convert the input's colours to classes and instances; then as `_prepare_pair`, without mixing ids."""
    colours, photograph = _halves(picture, data)
    return stack_labels(facade_labels(colours), None, photograph, (data.load_side, data.load_side))


def _halves(picture: Picture, data: DataConfig) -> tuple[Picture, Picture]:
    """Return a pair's input and target."""
    middle = picture.shape[1] // 2
    left, right = picture[:, :middle], picture[:, middle : 2 * middle]
    return (right, left) if data.direction == "BtoA" else (left, right)


def _resize_to_square(picture: Picture, side: int) -> Picture:
    """Resize to a square with Pillow, whose filter widens when shrinking; OpenCV's bicubic would skip pixels."""
    resized = Image.fromarray(np.ascontiguousarray(picture)).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(resized)


def _resize(picture: Picture, size: tuple[int, int], method: int) -> Picture:
    return picture if picture.shape[1::-1] == size else _as_uint8(cv2.resize(picture, size, interpolation=method))


def _as_uint8(values: Any) -> Picture:
    picture: Picture = values
    return picture
