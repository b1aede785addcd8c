"""Sample sheets, PSNR and SSIM."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from training.evaluate.metrics import ssim
from training.loop.sheets import arrange_sheet, mean_psnr_db, mean_ssim, write_sheet


def test_a_sheet_has_a_row_a_sample_and_is_written_in_rgb(tmp_path: Path) -> None:
    red, blue = torch.zeros(3, 3, 4, 5), torch.zeros(3, 3, 4, 5)
    red[:, 0], blue[:, 2] = 1, 2
    sheet = arrange_sheet([red, blue])
    assert sheet.shape == (3, 12, 10)
    write_sheet(sheet, tmp_path / "new" / "1.png")
    found = cv2.imread(str(tmp_path / "new" / "1.png"))
    assert found[0, 0].tolist() == [0, 0, 255]
    assert found[0, 9].tolist() == [255, 0, 0]


def test_psnr_is_the_mean_of_each_pictures_own() -> None:
    truth = torch.zeros(2, 3, 4, 4)
    found = truth.clone()
    found[0] += 0.1
    found[1] += 0.01
    assert mean_psnr_db([(found, truth)]) == pytest.approx(30, abs=1e-3)
    assert mean_psnr_db([(found[:1], truth[:1]), (found[1:], truth[1:])]) == pytest.approx(30, abs=1e-3)


def test_ssim_is_that_of_evaluate_for_pictures_of_8_bits() -> None:
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (2, 24, 30, 3), np.uint8)
    noisy = np.clip(pictures + random.normal(0, 20, pictures.shape), 0, 255).astype(np.uint8)
    found, truth = (torch.from_numpy(each).permute(0, 3, 1, 2) / 255 for each in (noisy, pictures))
    wanted = np.mean([ssim(*pair) for pair in zip(noisy, pictures, strict=True)])
    assert mean_ssim([(found, truth)]) == pytest.approx(wanted, abs=1e-6)
    assert mean_ssim([(truth[..., :8, :8], truth[..., :8, :8])]) == pytest.approx(1)
