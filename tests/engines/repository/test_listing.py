"""The listing of the models folder, and the reasons why it has no models."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.repository.listing import VersionKey, list_folder, why_empty


def make_folder(root: Path) -> None:
    root.mkdir()


def make_file(root: Path) -> None:
    root.write_text("")


def make_a_model_without_its_manifest(root: Path) -> None:
    (root / "photos/1").mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _root: None, "the folder is not there"),
        (make_folder, "the folder is empty"),
        (make_file, "the folder cannot be read (Not a directory)"),
        (make_a_model_without_its_manifest, "no NAME/VERSION/manifest.json in the folder"),
    ],
)
def test_a_folder_without_models_says_why_it_has_none(tmp_path: Path, make, why: str) -> None:
    make(tmp_path / "models")
    assert why_empty(tmp_path / "models") == why


def test_a_folder_with_a_model_is_not_empty_even_if_it_is_broken(tmp_path: Path) -> None:
    make_a_model_without_its_manifest(tmp_path)
    (tmp_path / "photos/1/manifest.json").write_text("broken")
    assert why_empty(tmp_path) is None


NAMES = "a model's name has lower-case letters, digits, - and _ only, at most 64, and begins with a letter or digit"
VERSIONS = "a version is a number from 1, without zeros before it"


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("My Lama/1", NAMES),
        ("lama/v1", VERSIONS),
        ("lama/01", VERSIONS),
        ("lama", "manifest.json belongs in NAME/VERSION, such as lama/1"),
        ("1", "manifest.json belongs in NAME/VERSION; is the models folder one higher?"),
        ("lama/1", None),
        (".export-x/lama", None),
        ("lama/.export-x", None),
    ],
)
def test_a_model_in_a_folder_that_is_not_served_is_found_with_the_reason(
    tmp_path: Path, folder: str, why: str | None
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "manifest.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    assert list_folder(tmp_path).misnamed == ({tmp_path / folder: why} if why else {})
    if why:
        assert why_empty(tmp_path) == f"{folder}: {why}"


def test_files_of_a_version_that_are_broken_links_are_left_out_and_a_manifest_that_is_one_is_none(
    tmp_path: Path,
) -> None:
    for folder, manifest in (("lama/1", "here"), ("lama/2", "nowhere")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "here").write_text("{}")
        (tmp_path / folder / "graph.onnx").symlink_to("nowhere")
        (tmp_path / folder / "manifest.json").symlink_to(manifest)
    versions = list_folder(tmp_path).versions
    assert list(versions) == [VersionKey("lama", 1)]
    assert [name for name, _, _ in versions[VersionKey("lama", 1)].files] == ["here", "manifest.json"]
