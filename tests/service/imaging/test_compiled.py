"""The libraries that are compiled when Retouch is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from service.imaging import compiled
from service.imaging.compiled import address, address_of_rows, load_library


def test_a_library_that_was_not_compiled_is_none() -> None:
    assert load_library("service.imaging._not_compiled") is None


def test_a_library_of_another_system_counts_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = tmp_path / "_foreign.abi3.so"
    library.write_bytes(os.urandom(64))
    foreign = importlib.util.spec_from_file_location("_foreign", library)
    monkeypatch.setattr(compiled, "find_spec", lambda _: foreign)
    assert load_library("service.imaging._foreign") is None


def test_arrays_with_gaps_have_no_address() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        address(np.zeros(50)[::2])


def test_rows_may_be_apart_but_their_items_may_not() -> None:
    whole = np.zeros((6, 8), np.uint8)
    start, stride = address_of_rows(whole[1:, 2:5])
    assert (start.value, stride.value) == (whole.ctypes.data + 10, 8)
    with pytest.raises(ValueError, match="without gaps"):
        address_of_rows(whole[:, ::2])
