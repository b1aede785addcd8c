"""Which files of a folder are pictures."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from training.data.picture_files import picture_paths


def test_pipes_are_skipped_and_dead_links_are_not(tmp_path: Path) -> None:
    """Reading a pipe would wait for ever; a dead link is a picture that is missing, which its reader reports."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    (tmp_path / "c.png").symlink_to("gone.png")
    (tmp_path / "d.png").mkdir()
    assert [path.name for path in picture_paths(tmp_path)] == ["a.png", "c.png"]
