"""From replies, models and errors to the JSON of AUTOMATIC1111's API. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import cv2
import numpy as np

from engines.repository.versions import ModelStatus
from service.core.pictures import Picture, Pixels, Size
from service.core.reply import Reply
from service.imaging.files import codec


def img2img_json(reply: Reply, files: Sequence[bytes], size: Size) -> dict[str, Any]:
    """Return the body of a response, for `json_body`: the PNG files of a reply, which now have this size."""
    seed = -1 if reply.seed is None else reply.seed
    info = {
        "prompt": "",
        "negative_prompt": "",
        "all_prompts": [""] * len(files),
        "all_negative_prompts": [""] * len(files),
        "seed": seed,
        "all_seeds": [seed if reply.seed is None else seed + index for index in range(len(files))],
        "subseed": -1,
        "all_subseeds": [-1] * len(files),
        "width": size.width,
        "height": size.height,
        "batch_size": len(files),
        "steps": 0,
        "sampler_name": "",
        "sd_model_name": reply.model,
        "index_of_first_image": 0,
        "infotexts": [""] * len(files),
    }
    return {"images": files, "parameters": {}, "info": json.dumps(info)}


def idle_progress() -> dict[str, Any]:
    """Return the progress of a server that does nothing; clients read counts from `state` while they wait."""
    flags = dict.fromkeys(("skipped", "interrupted", "stopping_generation"), False)
    counts = dict.fromkeys(("job_count", "job_no", "sampling_step", "sampling_steps"), 0)
    state = {**flags, "job": "", "job_timestamp": "0", **counts}
    return {"progress": 0.0, "eta_relative": 0.0, "state": state, "current_image": None, "textinfo": None}


def scaled(file: bytes, size: Size, max_pixels: int) -> bytes:
    """Return a picture scaled to another size, as PNG."""
    picture = codec.decode(file, max_pixels=max_pixels)
    alpha = None if picture.alpha is None else _resized(picture.alpha[:, :, None], size)[:, :, 0]
    return codec.encode(Picture(_resized(picture.pixels, size), alpha, picture.icc), "png", 90)


def models_json(statuses: Iterable[ModelStatus]) -> list[dict[str, Any]]:
    """Return the models that fill holes; their names are their titles."""
    names = {
        status.name
        for status in statuses
        if status.state != "refused" and status.manifest is not None and status.manifest.task == "inpaint"
    }
    unknown: dict[str, Any] = {"hash": None, "sha256": None, "config": None}
    return [{"title": name, "model_name": name, "filename": name, **unknown} for name in sorted(names)]


def _resized(pixels: Pixels, size: Size) -> Pixels:
    smaller = size.height * size.width < pixels.shape[0] * pixels.shape[1]
    how = cv2.INTER_AREA if smaller else cv2.INTER_LANCZOS4
    found: Any = cv2.resize(pixels, (size.width, size.height), interpolation=how)
    return np.ascontiguousarray(found.reshape(size.height, size.width, -1))
