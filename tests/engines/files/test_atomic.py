"""A file has its whole new content or its old one, never a part."""

from __future__ import annotations

import pytest

from engines.files.atomic import write_atomically


def test_content_takes_the_place_of_what_was_there_in_a_folder_that_is_made(tmp_path):
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "new" / "file", content)
    assert (tmp_path / "new" / "file").read_bytes() == b"second"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_what_was_there_stays_when_the_disk_is_full(tmp_path, request):
    write_atomically(tmp_path / "file", b"first")
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "file", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"first")]
