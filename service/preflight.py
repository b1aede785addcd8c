"""What every start does before anything is served: what cannot work is said now, and not with the first request."""

from __future__ import annotations

import resource
from pathlib import Path

from service.auth.exposure import check_exposure
from service.auth.keys import read_keys
from service.core.settings import Settings
from service.jobs.webhook_signing import read_secrets
from service.saving.assembly import open_storage
from service.shared_ledger import shared_ledger
from service.telemetry.logs import configure_logs
from service.telemetry.tracing import check_tracing

_OPEN_FILES = 65_536


def prepare(settings: Settings) -> None:
    """Check the settings against this machine, and make this process ready.

    Raises:
        SettingsInvalid: results cannot be saved as the settings say, strangers could use the server, a package that the
            settings need is missing, the file of webhook secrets is wrong, or the ledger is damaged.
        KeysInvalid: the key file cannot be read.
    """
    check_exposure(settings)
    check_tracing(settings)
    if settings.keys_file:
        read_keys(Path(settings.keys_file))
    if settings.webhook_secret_file:
        read_secrets(Path(settings.webhook_secret_file))
    configure_logs(settings)
    _raise_open_files_limit()
    open_storage(settings)
    with shared_ledger(settings):  # opened, and closed again: each process opens its own
        pass


def _raise_open_files_limit() -> None:
    """Each connection needs a file: a soft limit of 1,024 would end before the queue is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
