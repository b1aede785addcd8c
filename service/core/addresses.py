"""Conversions of addresses between the forms in URLs and in sockets."""

from __future__ import annotations


def with_port(host: str, port: int) -> str:
    """Return HOST:PORT, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_brackets(host: str) -> str:
    """Return a host in the form for sockets: an IPv6 address without the brackets that it has in URLs."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
