"""Check at start that a server without keys is not reachable from other machines by mistake."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from service.core.settings import Settings, SettingsInvalid


def check_exposure(settings: Settings) -> None:
    """Refuse settings that would let other machines use the server without a key.

    Raises:
        SettingsInvalid: the host is not loopback, no key file is named, and `allow_anonymous` is not set.
    """
    if settings.keys_file or settings.allow_anonymous or is_loopback(settings.host):
        return
    raise SettingsInvalid(
        f"host {settings.host!r} can be reached from other machines without an API key: create keys with "
        "`retouch keys create NAME` and pass their file with --keys-file, or pass --allow-anonymous"
    )


def keeps_gallery(settings: Settings) -> bool:
    """Whether this server lists and deletes results: if it has keys, or if only this machine can connect.

    Without keys it cannot tell clients on other machines apart, so results would have no owner. A server on loopback
    counts as reachable through a proxy if a public name or address or `allow_anonymous` is set.
    """
    named = settings.public_host or not is_loopback(urlsplit(settings.public_url).hostname or "localhost")
    private = is_loopback(settings.host) and not settings.allow_anonymous and not named
    return bool(settings.keys_file) or private


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`, an address or a name; the only such name is `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
