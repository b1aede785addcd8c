"""Several hosts on one machine: network namespaces, each with one address on a bridge; needs root and iproute2."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

_NOBODY = "02:00:00:00:00:fe"
"""A MAC address that no network card has."""
_FIRST_HOST = 2


@dataclass(frozen=True, slots=True)
class Host:
    """A host with its own network namespace; it shares process ids and files with the machine."""

    namespace: str
    address: str

    def command(self, *command: object, user: str | None = None) -> list[str]:
        """Return a command line that runs a program on this host; it execs the program, so the process id stays.

        Args:
            user: the user that the program runs as; None for root.
        """
        account = pwd.getpwnam(user) if user else None
        as_user = [f"--setuid={account.pw_uid}", f"--setgid={account.pw_gid}"] if account else []
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *as_user, *map(str, command)]


@dataclass
class HostNetwork:
    """A bridge, on which the machine has an address, and the hosts connected to it."""

    bridge: str
    prefix: str
    hosts: list[Host] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Address at which the hosts reach the machine itself."""
        return f"{self.prefix}.1"

    def add_host(self) -> Host:
        number = _FIRST_HOST + len(self.hosts)
        host = Host(f"{self.bridge}-{number}", f"{self.prefix}.{number}")
        near, here = f"{self.bridge}-{number}", ("-n", host.namespace)
        _ip("netns", "add", host.namespace)
        self.hosts.append(host)
        _ip("link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        _ip("link", "set", near, "master", self.bridge, "up")
        _ip(*here, "address", "add", f"{host.address}/24", "dev", "eth0")
        _ip(*here, "link", "set", "eth0", "up")
        _ip(*here, "link", "set", "lo", "up")
        return host

    def cut(self, one: Host, other: Host) -> None:
        """Drop every packet between two hosts without an error to the sender."""
        for here, there in ((one, other), (other, one)):
            wrong = ("lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
            _ip("-n", here.namespace, "neighbour", "replace", there.address, *wrong)

    def mend(self, one: Host, other: Host) -> None:
        """Undo `cut`."""
        for here, there in ((one, other), (other, one)):
            _ip("-n", here.namespace, "neighbour", "delete", there.address, "dev", "eth0")


@contextmanager
def host_network() -> Iterator[HostNetwork]:
    """Create a bridge for hosts until the block ends; the test is skipped where that is not permitted."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nsenter")):
        pytest.skip("network namespaces need root and iproute2")
    network = HostNetwork(f"rt{os.getpid()}", f"10.77.{os.getpid() % 250}")
    try:
        try:
            _ip("link", "add", network.bridge, "type", "bridge")
            _ip("address", "add", f"{network.address}/24", "dev", network.bridge)
            _ip("link", "set", network.bridge, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr}")
        yield network
    finally:
        with suppress(subprocess.CalledProcessError):
            for host in network.hosts:
                _ip("netns", "delete", host.namespace)
            _ip("link", "delete", network.bridge)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
