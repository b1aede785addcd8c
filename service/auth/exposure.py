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
        f"host {settings.host!r} can be reached from other machines and no key would be asked for: make keys with "
        "`retouch keys create NAME` and name their file with --keys-file, or say --allow-anonymous"
    )


def keeps_gallery(settings: Settings) -> bool:
    """Whether results are listed and deleted here: with keys, or where only this machine can ask.

    A server that other machines use without keys has no owners to tell apart. A public name or address, or the
    permission to be public, says that a server on loopback is behind a proxy.
    """
    named = settings.public_host or not is_loopback(urlsplit(settings.public_url).hostname or "localhost")
    private = is_loopback(settings.host) and not settings.allow_anonymous and not named
    return bool(settings.keys_file) or private


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to that address; of names, `localhost` alone is known to be one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
