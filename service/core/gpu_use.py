"""Whether the settings let a server use a GPU."""

from __future__ import annotations

from service.core.settings import Settings

_ON_CPUS = frozenset({"openvino", "onnxrt", "fake"})


def why_on_cpu(settings: Settings) -> str:
    """Return the reason why these settings use no GPU; empty if they allow one."""
    if settings.device == "cpu":
        return "the setting device is cpu"
    return f"the engine {settings.engine} needs no GPU" if settings.engine in _ON_CPUS else ""
