"""Addresses: the server's, and the ids at the end of the paths that it returns."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import httpx

from retouch.client.errors import AddressInvalid

_ID = re.compile(r"[0-9a-f]{32}")
_USER_INFO = re.compile(r"//[^/]*@")


def validated_url(url: str) -> str:
    """Validate a server's address and strip spaces around it, and slashes and an empty `?` or `#` at its end.

    Raises:
        AddressInvalid: it is not an http(s) address.
    """
    try:
        bare = url.strip()
        parts = urlsplit(bare)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        valid = valid and not (parts.query or parts.fragment)  # paths of calls are appended
        valid = valid and bool(httpx.URL(bare).host.encode("idna"))  # what httpx and name resolution would refuse later
    except (ValueError, httpx.InvalidURL):  # an invalid port, IPv6 address or host name
        valid = False
    if not valid:
        raise AddressInvalid(f"{url!r} is not the address of a server; write http://HOST:PORT")
    return parts.geturl().rstrip("/")


def for_messages(url: str) -> str:
    """Return an address without the name and password that it may hold."""
    return _USER_INFO.sub("//", url, count=1)


def id_at_end(path: str) -> str:
    """Return the id of a result or a job from a path or address, or an id as it is: 32 hexadecimal digits.

    Only the id is used, so that a request never goes to another host than the server's.

    Raises:
        AddressInvalid: there is no id at its end.
    """
    found = path.rstrip("/").rpartition("/")[2]
    if not _ID.fullmatch(found):
        raise AddressInvalid(f"{path!r} does not end in an id of 32 hexadecimal digits")
    return found
