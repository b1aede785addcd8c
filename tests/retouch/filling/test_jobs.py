from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest

from retouch.commands import fill
from retouch.filling.jobs import FilesInvalid, FillJob, Format, fill_jobs, generation_jobs, pair_images, with_samples
from service.core.batch_rows import Strategy
from service.core.pictures import ImageFormat, MaskMode


def test_the_flags_offer_what_the_service_takes() -> None:
    assert get_args(Format) == get_args(ImageFormat)
    assert get_args(fill.MaskMode) == get_args(MaskMode)
    assert get_args(fill.Strategy) == get_args(Strategy)


@pytest.mark.parametrize(
    ("out", "wanted", "expected"),
    [
        ("o.png", None, "png"),
        ("o.JPG", None, "jpeg"),
        ("o.jpeg", "jpeg", "jpeg"),
        ("o.webp", None, "webp"),
        ("o.out", "webp", "webp"),
    ],
)
def test_the_format_follows_the_suffix_of_the_output(
    pictures: Path, out: str, wanted: Format | None, expected: Format
) -> None:
    image, mask = pictures / "images/a.png", pictures / "masks/a.png"
    jobs = fill_jobs(image, mask, pictures / out, wanted, overwrite=False)
    assert jobs == [FillJob(image, mask, pictures / out, expected)]


def test_an_output_folder_names_the_file_after_the_image(pictures: Path) -> None:
    (pictures / "out").mkdir()
    [job] = fill_jobs(pictures / "images/b.jpg", None, pictures / "out", None, overwrite=False)
    assert (job.out, job.format, job.mask) == (pictures / "out/b.png", "png", None)


def test_a_slash_at_its_end_makes_the_output_a_folder_that_is_not_there_yet(pictures: Path) -> None:
    [job] = fill_jobs(pictures / "images/b.jpg", None, f"{pictures}/new/", "webp", overwrite=False)
    assert job.out == pictures / "new/b.webp"
    [job] = generation_jobs(f"{pictures}/new/", None, 1, overwrite=False)
    assert job.out == pictures / "new/generated.png"
    with pytest.raises(FilesInvalid, match=r"images/a\.png is a file, but the results need a folder"):
        fill_jobs(pictures / "images/b.jpg", None, f"{pictures}/images/a.png/", None, overwrite=True)


def test_folders_are_matched_by_file_stem(pictures: Path) -> None:
    jobs = fill_jobs(pictures / "images", pictures / "masks", pictures / "out", "jpeg", overwrite=False)
    names = [(job.image.name, job.mask and job.mask.name, job.out.name) for job in jobs]
    assert names == [("a.png", "a.png", "a.jpg"), ("b.jpg", "b.png", "b.jpg"), ("c.webp", "c.png", "c.jpg")]


def test_one_mask_serves_a_whole_folder_and_one_image_finds_its_mask_in_a_folder(pictures: Path) -> None:
    mask = pictures / "masks/a.png"
    assert [one for _, one in pair_images(pictures / "images", mask)] == [mask] * 3
    assert pair_images(pictures / "images/b.jpg", pictures / "masks") == [
        (pictures / "images/b.jpg", pictures / "masks/b.png")
    ]


def test_a_file_that_exists_is_not_overwritten_unless_asked(pictures: Path) -> None:
    (pictures / "out").mkdir()
    (pictures / "out/b.png").write_bytes(b"precious")
    with pytest.raises(FilesInvalid, match=r"b\.png.*|--overwrite"):
        fill_jobs(pictures / "images", None, pictures / "out", None, overwrite=False)
    assert len(fill_jobs(pictures / "images", None, pictures / "out", None, overwrite=True)) == 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_device_or_pipe_is_never_replaced_by_a_file(pictures: Path, overwrite: bool) -> None:
    os.mkfifo(pictures / "pipe")
    (pictures / "link").symlink_to("/dev/null")
    for out in (pictures / "pipe", pictures / "link"):
        with pytest.raises(FilesInvalid, match=f"{out} is not a file; name another -o"):
            fill_jobs(pictures / "images/a.png", None, out, "png", overwrite=overwrite)
        with pytest.raises(FilesInvalid, match=f"{out} is not a file; name another -o"):
            generation_jobs(out, "png", 1, overwrite=overwrite)


@pytest.mark.parametrize(("wanted", "name"), [(None, "generated.png"), ("jpeg", "generated.jpg")])
def test_what_is_generated_into_a_folder_has_a_name_there(tmp_path: Path, wanted: Format | None, name: str) -> None:
    (job,) = generation_jobs(tmp_path, wanted, 1, overwrite=False)
    assert job.out == tmp_path / name


def test_hidden_files_of_a_folder_are_left_alone(pictures: Path) -> None:
    for folder in ("images", "masks"):
        (pictures / folder / "._a.jpg").write_bytes(b"a Mac's notes about a.jpg")
    found = pair_images(pictures / "images", pictures / "masks")
    assert [image.name for image, _ in found] == ["a.png", "b.jpg", "c.webp"]


def test_a_link_that_leads_nowhere_is_a_picture_that_fails_and_none_that_is_left_out(pictures: Path) -> None:
    (pictures / "images" / "b.jpg").unlink()
    (pictures / "images" / "b.jpg").symlink_to(pictures / "moved away.jpg")
    (pictures / "images" / "folder.jpg").mkdir()
    found = pair_images(pictures / "images", pictures / "masks")
    assert [image.name for image, _ in found] == ["a.png", "b.jpg", "c.webp"]


@pytest.mark.parametrize(
    ("image", "mask", "out", "wanted", "message"),
    [
        pytest.param("gone.png", None, "o.png", None, "gone.png does not exist", id="no image"),
        pytest.param("images/a.png", "gone", "o.png", None, "gone does not exist", id="no mask"),
        pytest.param(
            "images/a.png",
            None,
            "o.tiff",
            None,
            r"o\.tiff does not end in .*--format png, jpeg or webp$",
            id="unknown suffix",
        ),
        pytest.param("images/a.png", None, "o.png", "jpeg", "make them agree", id="format and suffix differ"),
        pytest.param("images", None, "images/a.png", None, "need a folder", id="folder into a file"),
        pytest.param("empty", None, "o", None, "no images in", id="empty folder"),
        pytest.param("images", "empty", "o", None, "no mask of the same name .*a.png, .*b.jpg", id="masks missing"),
        pytest.param("images", "twins", "o", None, "masks of the same name in .*: a", id="ambiguous masks"),
        pytest.param("twins", None, "o", None, "overwrite each other: a.png", id="ambiguous images"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    pictures: Path, image: str, mask: str | None, out: str, wanted: Format | None, message: str
) -> None:
    (pictures / "empty").mkdir()
    (pictures / "twins").mkdir()
    (pictures / "twins/a.png").write_bytes(b"")
    (pictures / "twins/a.webp").write_bytes(b"")
    with pytest.raises(FilesInvalid, match=message):
        fill_jobs(pictures / image, pictures / mask if mask else None, pictures / out, wanted, overwrite=False)


@pytest.mark.parametrize(
    ("image", "mask", "out", "message"),
    [
        ("https://a.example/b.jpg", None, "o.png", r"^https://a\.example/b\.jpg is an address: download the picture"),
        ("images/a.png", "HTTP://a.example/b.png", "o.png", r"^HTTP://a\.example/b\.png is an address"),
        ("-", None, "o.png", "standard input: name a file$"),
        ("images/a.png", "-", "o.png", "standard input: name a file$"),
        ("images/a.png", None, "-", "standard output: name a file with -o$"),
    ],
)
def test_an_address_or_a_standard_stream_is_told_from_a_file(
    pictures: Path, monkeypatch: pytest.MonkeyPatch, image: str, mask: str | None, out: str, message: str
) -> None:
    monkeypatch.chdir(pictures)
    with pytest.raises(FilesInvalid, match=message):
        fill_jobs(Path(image), Path(mask) if mask else None, out, "png", overwrite=False)


@pytest.mark.parametrize(("out", "samples"), [("o.png", 1), ("s.png", 2)])
def test_a_result_that_is_there_already_is_named_with_what_to_do(pictures: Path, out: str, samples: int) -> None:
    for name in ("o.png", "s-1.png"):
        (pictures / name).write_bytes(b"kept")
    image, others = pictures / "images/a.png", "--missing to make only the others, "
    with pytest.raises(FilesInvalid) as error:
        with_samples(fill_jobs(image, None, pictures / out, None, overwrite=samples > 1), samples, overwrite=False)
    named, more = (f"{pictures}/o.png", "") if samples == 1 else (f"{pictures}/s-1.png", others)
    assert str(error.value) == (f"{named} exists already; add {more}--overwrite to replace it, or name another -o")


@pytest.mark.parametrize(("out", "wanted"), [("o.tiff", None), ("o.png", "jpeg")])
def test_a_format_that_the_output_cannot_have_is_a_wrong_flag(pictures: Path, out: str, wanted: Format | None) -> None:
    with pytest.raises(FilesInvalid) as error:
        fill_jobs(pictures / "images/a.png", None, pictures / out, wanted, overwrite=False)
    assert error.value.exit_status == 2


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    (tmp_path / "images").mkdir()
    for number in range(12):
        (tmp_path / "images" / f"{number:02}.png").write_bytes(b"")
    with pytest.raises(FilesInvalid, match=r"04\.png and 7 more$"):
        pair_images(tmp_path / "images", tmp_path / "masks")
