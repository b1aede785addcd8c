"""Whether strangers could use a server whose settings ask for no key."""

from __future__ import annotations

import ipaddress

from service.core.settings import Settings, SettingsInvalid


def check_exposure(settings: Settings) -> None:
    """Whether others could use the server without having been asked to.

    Raises:
        SettingsInvalid: it would listen on more than this machine, ask for no key, and nobody said that this is meant.
    """
    if settings.keys_file or settings.allow_anonymous or _is_loopback(settings.host):
        return
    raise SettingsInvalid(
        f"{settings.host} can be reached from other machines and no key would be asked for: make keys with "
        "`retouch keys create NAME` and name their file with --keys-file, or say --allow-anonymous"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name; only this one is sure to stay here
        return host == "localhost"
