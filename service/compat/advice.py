"""Advice of errors, for APIs that have no field to have a mask scaled, or a result not saved."""

from __future__ import annotations

NO_FIELD_FOR_IT = {
    "sizes_differ": "scale the mask to the size of the image before sending it",
    "spool_full": "try again later",
    "storage_unavailable": "try again later",
}
"""The advice by the code of the error."""
