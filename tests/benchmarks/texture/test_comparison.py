"""The report lines that compare texture with the plain fill and with Telea's."""

from __future__ import annotations

from benchmarks.texture.comparison import compare, interval, worst


def picture(name: str, band: str, *lpips: float, thickness: str = "9-16 px") -> dict[str, object]:
    painters = dict(zip(("model", "texture", "telea"), lpips, strict=True))
    figures = {painter: {"lpips": value, "vgg": 2 * value} for painter, value in painters.items()}
    return {"name": name, "band": band, "thickness": thickness, **figures}


PICTURES = [
    picture("a", "20-30 %", 0.2, 0.1, 0.4),
    picture("b", "10-20 %", 0.1, 0.2, 0.4, thickness="over 128 px"),
    picture("c", "10-20 %", 0.3, 0.16, 0.4),
]


def test_each_class_has_a_line_with_its_ratios_and_counts() -> None:
    lines = list(compare({"pictures": PICTURES}))
    assert [line.partition(",")[0] for line in lines[:-1]] == ["10-20 %", "20-30 %", "9-16 px", "over 128 px", "all"]
    assert lines[0] == (
        "10-20 %, 2 pictures: LPIPS of Telea's: plain 0.500, texture 0.450; "
        "texture of plain: LPIPS 0.900, lower in 1, VGG 0.900, lower in 1"
    )


def test_the_interval_of_pictures_that_all_gain_the_same_is_that_gain() -> None:
    assert interval([picture("a", "all", 0.2, 0.1, 0.4)] * 3) == (0.5, 0.5)


def test_the_worst_are_those_whose_lpips_rises_most() -> None:
    assert worst({"pictures": PICTURES}, 2) == ["b", "a"]
