from __future__ import annotations

from pathlib import Path

from service.saving.local_disk.holes import free_range

BLOCK_BYTES = 4096


def test_a_freed_range_reads_as_zeros_and_the_file_keeps_its_length_and_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10 * BLOCK_BYTES)
    before = path.stat().st_blocks
    with path.open("r+b") as file:
        assert free_range(file.fileno(), 100, 8 * BLOCK_BYTES)
    assert path.read_bytes() == b"x" * 100 + bytes(8 * BLOCK_BYTES) + b"x" * (2 * BLOCK_BYTES - 100)
    assert (before - path.stat().st_blocks) * 512 >= 7 * BLOCK_BYTES


def test_nothing_is_freed_in_an_empty_range_or_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * BLOCK_BYTES)
    with path.open("rb") as file:
        assert not free_range(file.fileno(), 0, 0)
        assert not free_range(file.fileno(), 0, BLOCK_BYTES)
    assert path.read_bytes() == b"x" * BLOCK_BYTES
