"""Builds images with buildah and runs them with util-linux, for machines without a container engine.

`Container` does what an engine does with `--read-only --user --security-opt no-new-privileges`: a mount namespace of
its own, the image as a read-only root, a tmpfs on /tmp, volumes, the image's own user, environment and entry point.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT.parent / "shared" / "container" / "stand_in_base.sh"
DEBIAN = "docker.io/library/debian:bookworm-slim"
SLIM = "localhost/retouch-test-base"
_MAKE_SLIM = f"""FROM {DEBIAN}
RUN rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /usr/share/doc /usr/share/locale /usr/share/man
"""
"""Instructions that remove files of debootstrap's minimal system that Debian's slim image lacks."""


def run(*command: str | Path, **options: Any) -> str:
    """Run a command and return its standard output; AssertionError with all its output if it fails."""
    environ = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}  # set by the tests
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ, **options)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def make_base() -> str:
    """Make the stand-in for Debian's slim image, from a local copy of the image or with debootstrap; returns its tag.

    The image contains no times, so the same source gives the same image, and layers built on it are reused.
    """
    if not run("buildah", "images", "--quiet", "--filter", f"reference={DEBIAN}"):
        run("bash", STAND_IN, DEBIAN, timeout=600)
    bud = ("buildah", "bud", "--quiet", "--isolation", "chroot", "--squash", "--timestamp", "0", "--tag", SLIM)
    run(*bud, "--file", "-", ROOT / "tests" / "docker", input=_MAKE_SLIM, timeout=300)
    return SLIM


def build(tag: str, dockerfile: str, target: str = "", **arguments: str) -> str:
    """Build an image of the checkout, reusing unchanged layers of earlier builds; returns its tag."""
    options = ["--format", "docker", "--isolation", "chroot", "--network", "host", "--layers", "--tag", tag]
    options += ["--target", target] if target else []
    for name, value in arguments.items():
        options += ["--build-arg", f"{name}={value}"]
    run("buildah", "bud", *options, "--file", ROOT / "docker" / dockerfile, ROOT, timeout=1200)
    return tag


@dataclass
class Image:
    """An unpacked image."""

    root: Path
    config: Mapping[str, Any]
    size_bytes: int

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.config["Env"])

    @property
    def user(self) -> str:
        return str(self.config["User"])


@contextmanager
def unpacked(tag: str) -> Iterator[Image]:
    """Mount an image's file system until the block ends; yields it with the image's configuration."""
    container = run("buildah", "from", "--pull-never", tag).strip()
    try:
        root = Path(run("buildah", "mount", container).strip())
        described = json.loads(run("buildah", "inspect", "--type", "image", tag))
        yield Image(root, described["Docker"]["config"], _size_of(tag))
    finally:
        run("buildah", "umount", container)
        run("buildah", "rm", container)


def _size_of(tag: str) -> int:
    """Return the unpacked size of all layers in bytes."""
    described = json.loads(run("podman", "image", "inspect", tag))[0]
    return int(described["Size"])


@dataclass
class Container:
    """An image with volumes and environment, to be run."""

    image: Image
    volumes: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, *command: str, entry: Sequence[str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start the entry point with these arguments; returns its first process."""
        environment = {**self.image.environment, **self.environment}
        words = [*(self.image.config["Entrypoint"] if entry is None else entry), *command]
        inside = ["env", "--ignore-environment", *(f"{name}={value}" for name, value in environment.items()), *words]
        root = self.image.root
        lines = [
            f"mount --bind {root} {root}",
            f"mount --options remount,bind,ro {root}",
            f"mount --types tmpfs tmpfs {root}/tmp",
            f"mount --rbind /dev {root}/dev",
            f"mount --rbind /proc {root}/proc",
            *(f"mount --bind {source} {root}{target}" for target, source in self.volumes.items()),
            f"cd {root}",
            f"exec setpriv --no-new-privs chroot --userspec={self.image.user} --groups= {root} {shlex.join(inside)}",
        ]
        script = "set -e\n" + "\n".join(lines)
        return subprocess.Popen(["unshare", "--mount", "sh", "-c", script], text=True, **options)

    def run(self, *command: str, entry: Sequence[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the entry point to its end."""
        process = self.start(*command, entry=entry, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def stopped(process: subprocess.Popen[str], image: Image, timeout_s: float) -> int:
    """Send the image's stop signal and wait, as a container engine does; returns the exit status."""
    process.send_signal(getattr(signal, image.config["StopSignal"]))
    try:
        return process.wait(timeout_s)
    finally:
        process.kill()
        process.wait(10)


def missing_tools() -> str:
    """Return the reason why images cannot be built on this machine; empty if they can."""
    if os.geteuid() != 0:
        return "building and containing without an engine needs root"
    for tool in ("buildah", "podman", "unshare", "setpriv"):
        if subprocess.run(["which", tool], capture_output=True, check=False).returncode:
            return f"{tool} is not installed (.ci/run installs it where apt works)"
    have_base = run("buildah", "images", "--quiet", "--filter", f"reference={DEBIAN}")
    return "" if have_base or STAND_IN.exists() else f"neither {DEBIAN} nor a script that makes a stand-in is here"
