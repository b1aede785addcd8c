"""The foreign APIs that a server speaks."""

from __future__ import annotations

from collections.abc import Collection

from service.compat.automatic1111.routes import AUTOMATIC1111
from service.compat.iopaint.routes import IOPAINT
from service.compat.open_inference.routes import OPEN_INFERENCE
from service.compat.openai.routes import OPENAI
from service.web.middleware.foreign import ForeignApi

_ALL = (OPENAI, IOPAINT, OPEN_INFERENCE, AUTOMATIC1111)


def foreign_apis(names: Collection[str]) -> tuple[ForeignApi, ...]:
    """Return the foreign APIs of these names, of those that the setting `apis` may have."""
    return tuple(api for api in _ALL if api.name in names)
