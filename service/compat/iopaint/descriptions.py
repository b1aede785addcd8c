"""Descriptions that IOPaint's page requests while it loads, and the form of errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engines.repository.versions import ModelStatus


def model_info(name: str) -> dict[str, Any]:
    """Describe a model that fills holes and takes no prompt."""
    return {
        "name": name,
        "path": name,
        "model_type": "inpaint",
        "is_single_file_diffusers": False,
        "need_prompt": False,
        "controlnets": [],
        "brushnets": [],
        **dict.fromkeys(
            (
                *("support_strength", "support_outpainting", "support_lcm_lora"),
                *("support_controlnet", "support_brushnet", "support_powerpaint_v2"),
            ),
            False,
        ),
    }


def server_config(statuses: Iterable[ModelStatus], default: str) -> dict[str, Any]:
    """Describe a server without plugins and files, whose model cannot be switched; the default model comes first."""
    usable = {status.name for status in statuses if status.manifest is not None and status.manifest.task == "inpaint"}
    return {
        "plugins": [],
        "modelInfos": [model_info(name) for name in sorted({*usable, default}, key=lambda name: name != default)],
        **{f"{plugin}Model": "" for plugin in ("removeBG", "realesrgan", "interactiveSeg")},
        **{f"{plugin}Models": [] for plugin in ("removeBG", "realesrgan", "interactiveSeg")},
        "enableFileManager": False,
        "enableAutoSaving": False,
        "enableControlnet": False,
        "controlnetMethod": None,
        "disableModelSwitch": True,
        "isDesktop": False,
        "samplers": [],
    }
