"""The error of an installation that did not succeed."""

from __future__ import annotations

from engines.errors import RetouchError


class InstallFailed(RetouchError):
    """The packages of a GPU could not be installed; the message says how to retry, and how to serve without a GPU."""
