from __future__ import annotations

import zipfile

import pytest

from export.archives.zip_entries import open_zip
from export.errors import CheckpointRefused
from tests.export.archives.script_files import zipped


def test_stored_entries_are_read(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"x/one": b"abc", "x/two": b""}))
    with open_zip(tmp_path / "a.zip") as entries:
        assert (entries.read("x/one", 3), entries.read("x/two", 0)) == (b"abc", b"")
        with pytest.raises(CheckpointRefused, match="x/one has 3 bytes, at most 2"):
            entries.read("x/one", 2)
        with pytest.raises(CheckpointRefused, match="has no entry x/three"):
            entries.read("x/three", 2)


def test_compressed_entries_may_lie_beside_but_are_not_read(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"x/one": bytes(10_000)}, zipfile.ZIP_DEFLATED))
    with open_zip(tmp_path / "a.zip") as entries, pytest.raises(CheckpointRefused, match="x/one is compressed"):
        entries.read("x/one", 20_000)


def test_a_changed_byte_is_noticed(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"x/one": b"abcdef"}).replace(b"abcdef", b"abcdeX"))
    with open_zip(tmp_path / "a.zip") as entries, pytest.raises(CheckpointRefused, match="damaged zip, entry x/one"):
        entries.read("x/one", 6)


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06", b"abc" * 100], ids=repr)
def test_what_is_no_zip_is_refused(data, tmp_path):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(CheckpointRefused, match="damaged zip"), open_zip(tmp_path / "a.zip"):
        pass
