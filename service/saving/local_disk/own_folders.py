"""Names of folders beside the results, in the results folder and in a bucket, for those who look for all of them."""

from __future__ import annotations

ORDERS = ".jobs"
RESPONSES = ".replies"
THUMBNAILS = ".thumbnails"
