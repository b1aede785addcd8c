"""Settings removed in 0.2 and 0.3. They are accepted in 0.3, with a warning that says what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

RETIRED = {
    "slots_mb": "the size is fixed now: 256 MiB for each front end and engine process",
    "fake_faults": "the fake engine reads ENGINE_CACHE_DIR/fake_fault now",
    "max_uploads": "it follows from max_memory_mb now: one upload for each 4 MiB, at least 64",
    "max_bodies_mb": "set max_memory_mb to twice the value, which bodies and decoded pictures share equally",
    "max_decoded_mb": "set max_memory_mb to twice the value, which bodies and decoded pictures share equally",
    "upload_threads": "the number is fixed now: up to 16 results are uploaded at the same time",
    "spool_max_mb": "it follows from spool_max_items now: 256 KiB for each",
    "save_threads": "the number is fixed now: of two threads one writes while the other syncs",
    "save_group": "the number is fixed now: up to 64 results are saved with the same syncs",
    "job_ttl_s": "the time is fixed now: a finished job can be polled for an hour",
    "max_jobs": "the number is fixed now: at most 1,000 jobs are unfinished",
    "idempotency_ttl_s": "the time is fixed now: the answer to an Idempotency-Key is kept for a day",
    "idempotency_wait_s": "the time is fixed now: a repeated request waits at most 30 s for the answer to the first",
    "s3_region": "set AWS_REGION to the region of the bucket",
    "log_format": "log lines are JSON, unless standard error is a terminal",
    "gpu_pictures": "CPU threads decode and paste pictures, because they are faster",
}
"""Advice for each retired setting, by name: its replacement and what to do."""


def without_retired_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of one source without the retired ones, and a line of advice for each retired one.

    A limit of memory or of the spool is translated into the setting that replaced it, unless that one is given as well.

    Raises:
        ValueError: a limit to be translated is not a positive number.
    """
    retired = {name: value for name, value in values.items() if name in RETIRED}
    kept = {**_translated_limits(retired), **{name: value for name, value in values.items() if name not in RETIRED}}
    advice = [f"the setting {name} no longer exists; remove it: {RETIRED[name]}" for name in retired]
    return kept, advice


def _translated_limits(retired: Mapping[str, Any]) -> dict[str, Any]:
    translated: dict[str, Any] = {}
    limits = [_positive_number(name, retired[name]) for name in ("max_bodies_mb", "max_decoded_mb") if name in retired]
    if limits:
        translated["max_memory_mb"] = 2 * min(limits)  # neither exceeds its former limit
    if "spool_max_mb" in retired:
        translated["spool_max_items"] = max(1, int(_positive_number("spool_max_mb", retired["spool_max_mb"]) * 4))
    return translated


def _positive_number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: {value!r} is not a number greater than 0")
    return number
