from __future__ import annotations

import pytest

from service.core.gpu_use import why_on_cpu
from service.core.settings import Settings


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings(), ""),
        (Settings(engine="trt"), ""),
        (Settings(device="cpu"), "the setting device is cpu"),
        (Settings(engine="onnxrt"), "the engine onnxrt needs no GPU"),
    ],
)
def test_settings_that_do_not_use_a_gpu_have_a_reason(settings: Settings, why: str) -> None:
    assert why_on_cpu(settings) == why
