"""Addresses as URLs have them."""

from __future__ import annotations


def with_port(host: str, port: int) -> str:
    """Return HOST:PORT, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_brackets(host: str) -> str:
    """Return a host as sockets take it: an IPv6 address without the brackets that URLs have."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
