"""Names of the folders beside the results, in the results folder and in a bucket."""

from __future__ import annotations

ORDERS = ".jobs"
RESPONSES = ".replies"
THUMBNAILS = ".thumbnails"
