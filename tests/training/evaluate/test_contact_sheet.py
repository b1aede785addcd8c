import numpy as np
from PIL import Image

from training.evaluate.cases import Case
from training.evaluate.contact_sheet import Row, draw_sheet, write_sheet


def _row(height, width, hole):
    def flat(value):
        return np.full((height, width, 3), value, np.uint8)

    mask = np.zeros((height, width), np.bool_)
    mask[:, : width // 2] = True
    return Row(Case("x", flat(10), flat(90), mask if hole else None, "all"), {"model": flat(30), "telea": flat(50)})


def test_columns_are_input_painters_truth_and_holes_are_white():
    sheet = np.asarray(draw_sheet([_row(40, 40, hole=True), _row(20, 40, hole=False)]))
    assert sheet.shape == (16 + 40 + 20 + 8, 4 * 44 - 4, 3)
    first, second = sheet[16 + 10, 30::44, 0], sheet[16 + 44 + 10, 30::44, 0]
    assert first.tolist() == [10, 30, 50, 90]
    assert second.tolist() == [10, 30, 50, 90]
    assert sheet[16 + 10, 5].tolist() == [255, 255, 255]
    assert sheet[16 + 44 + 10, 5].tolist() == [10, 10, 10]


def test_large_pictures_are_made_small_and_the_folder_is_made(tmp_path):
    write_sheet([_row(300, 600, hole=True)], tmp_path / "new/sheet.png")
    with Image.open(tmp_path / "new/sheet.png") as sheet:
        assert sheet.size == (4 * 260 - 4, 16 + 128 + 4)
