"""Check at start that a server without keys is not reachable from other machines by mistake."""

from __future__ import annotations

import ipaddress

from service.core.settings import Settings, SettingsInvalid


def check_exposure(settings: Settings) -> None:
    """Refuse settings that would let other machines use the server without a key.

    Raises:
        SettingsInvalid: the host is not loopback, no key file is named, and `allow_anonymous` is not set.
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
    except ValueError:  # a name; only `localhost` is known to be loopback
        return host == "localhost"
