"""The errors of adding a published model.

ZooError
├── DownloadFailed    the file could not be fetched whole, or its host leads elsewhere
├── FileRefused       the file is not the one that was published, or nothing confirms that it is
└── LicenceRefused    the user did not accept the licence
"""

from __future__ import annotations

from engines.errors import RetouchError


class ZooError(RetouchError):
    """A published model could not be added."""


class DownloadFailed(ZooError):
    """The file could not be fetched whole, or its host leads elsewhere."""


class FileRefused(ZooError):
    """The file is not the one that was published, or nothing confirms that it is."""


class LicenceRefused(ZooError):
    """The user did not accept the licence."""
