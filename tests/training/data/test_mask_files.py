"""Holes read from mask files."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from training.data.mask_files import MaskFiles
from training.errors import DataMissing

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small, large = np.zeros((60, 80), np.uint8), np.full((40, 40), 255, np.uint8)
    small[20:30, 20:60] = 255
    large[:4] = 0
    cv2.imwrite(str(tmp_path / "small.png"), small)
    cv2.imwrite(str(tmp_path / "large.png"), large)
    return tmp_path


def draw(folder: Path, count: int, seed: int = 1, share: tuple[int, int] | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return MaskFiles(folder, 32, CPU).draw(count, share or (0, count), (0.05, 0.55), generator)


def test_masks_are_varied_and_deterministic(folder: Path) -> None:
    masks = draw(folder, 40)
    assert masks.shape == (40, 1, 32, 32)
    assert ((masks == 0) | (masks == 1)).all()
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) > 20
    assert torch.equal(masks, draw(folder, 40))
    assert not torch.equal(masks, draw(folder, 40, seed=2))


def test_processes_draw_their_shares_of_the_same_masks(folder: Path) -> None:
    shares = [draw(folder, 12, share=share) for share in ((0, 4), (4, 12))]
    assert torch.equal(torch.cat(shares), draw(folder, 12))


def test_a_mask_that_covers_too_much_is_turned_inside_out(folder: Path) -> None:
    (folder / "small.png").unlink()
    covered = draw(folder, 40).mean((1, 2, 3))
    assert covered[covered < 0.55].max() < 0.2
    assert (covered < 0.55).sum() > 10


def test_a_folder_without_masks_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"masks\.folder"):
        MaskFiles(tmp_path, 32, CPU)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(DataMissing, match=r"broken\.png"):
        MaskFiles(tmp_path, 32, CPU)


def test_an_empty_file_and_one_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(DataMissing, match=r"empty\.png"):
        MaskFiles(tmp_path, 32, CPU)
    (tmp_path / "empty.png").unlink()
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataMissing, match=r"gone\.png: cannot be read"):
        MaskFiles(tmp_path, 32, CPU)


def test_all_broken_masks_are_named_at_once(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"no picture")
    with pytest.raises(DataMissing, match=r"(?s)^2 of 2 files .*a\.png.*b\.png"):
        MaskFiles(tmp_path, 32, CPU)
