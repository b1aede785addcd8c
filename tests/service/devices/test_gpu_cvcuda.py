"""Loading CV-CUDA; the error for a missing one names the command that installs it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from engines.errors import EngineUnavailable
from service.devices.gpu_cvcuda import load_cvcuda


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvcuda", None)
    with pytest.raises(EngineUnavailable, match=r"CV-CUDA does not load .*retouch install-gpu"):
        load_cvcuda()


def test_the_library_is_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "cvcuda", library)
    assert load_cvcuda() is library
