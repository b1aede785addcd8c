import numpy as np
import pytest

from training.evaluate.report import CaseFigures, Figures, gain_lines, gains, summarise


def _row(band, model, telea):
    return CaseFigures("x", band, 0.2, {"model": Figures(*model), "telea": Figures(*telea)})


ROWS = [
    _row("10-20 %", (30.0, 0.9, 0.1, 0.2), (29.0, 0.8, 0.2, 0.4)),
    _row("20-30 %", (20.0, 0.7, 0.3, 0.4), (20.0, 0.8, 0.2, 0.4)),
    _row("20-30 %", (22.0, 0.5, 0.2, 0.3), (20.0, 0.5, 0.2, 0.4)),
]


def test_means_are_over_pictures_by_band_and_over_all():
    found = summarise(ROWS)
    assert list(found["model"]) == ["all", "10-20 %", "20-30 %"]
    assert found["model"]["all"] == {"pictures": 3, "psnr_db": 24.0, "ssim": 0.7, "l1": 0.2, "lpips": 0.3}
    assert found["model"]["20-30 %"]["psnr_db"] == 21
    assert found["telea"]["10-20 %"]["pictures"] == 1


def test_gains_are_differences_of_psnr_and_ratios_of_distances():
    found = gains(summarise(ROWS))
    assert found["telea"]["psnr_gain_db"] == 1.0
    assert found["telea"]["lpips_ratio"] == pytest.approx(0.75)
    assert found["telea"]["l1_ratio"] == pytest.approx(1.0)
    (line,) = gain_lines({"gains": found})
    assert line == "model against telea: PSNR +1.00 dB, SSIM +0.0000, LPIPS × 0.750, L1 × 1.000"


def test_what_was_not_measured_is_left_out():
    rows = [_row("10-20 %", (30.0, 0.9, 0.1, None), (29.0, 0.9, 0.1, None))]
    assert "lpips" not in summarise(rows)["model"]["all"]
    assert "lpips_ratio" not in gains(summarise(rows))["telea"]


def test_classes_of_thickness_are_in_the_order_of_their_numbers():
    classes = ("17-32 px", "over 128 px", "9-16 px")
    rows = [_row("10-20 %", (30.0, 0.9, 0.1, 0.2), (29.0, 0.9, 0.1, 0.2))._replace(thickness=name) for name in classes]
    found = summarise(rows, lambda row: row.thickness)
    assert list(found["model"]) == ["all", "9-16 px", "17-32 px", "over 128 px"]


def test_kid_is_that_of_the_class_and_compared_as_a_ratio():
    rng = np.random.default_rng(0)
    near, far = (rng.normal(shift, 0.3, (8, 4)) for shift in (0.1, 1.0))
    truth = rng.normal(0, 0.3, (8, 4))
    patches = {"model": near, "telea": far, "truth": truth}
    rows = [row._replace(patches={name: part[i::3] for name, part in patches.items()}) for i, row in enumerate(ROWS)]
    found = summarise(rows)
    assert found["model"]["all"]["kid"] < found["telea"]["all"]["kid"]
    assert found["model"]["10-20 %"]["kid"] != found["model"]["all"]["kid"]
    assert gains(found)["telea"]["kid_ratio"] < 1
