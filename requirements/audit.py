"""Compares pinned requirements with a checkout of PyPA's advisory database, where pip-audit's service is out of reach.

    python requirements/audit.py requirements/constraints.txt CHECKOUT

It knows what the checkout knows: the day of its newest change is printed. Exit status 1: an advisory applies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


def pins(text: str) -> list[tuple[str, str]]:
    """Name and version of every line, whatever Python and system it is for."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    requirements = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return [(canonicalize_name(one.name), next(iter(one.specifier)).version) for one in requirements]


def advisories(checkout: Path) -> Iterator[Mapping[str, Any]]:
    """Those that stand."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((checkout / "vulns").glob("*/*.yaml")):
        advisory = yaml.load(path.read_text("utf-8"), loader)  # noqa: S506 -- a safe loader, in C where it is there
        if not advisory.get("withdrawn"):
            yield advisory


def applies(advisory: Mapping[str, Any], name: str, version: str) -> bool:
    """Whether it is about that version: listed, or within a range."""
    for affected in advisory["affected"]:
        package = affected["package"]
        if package["ecosystem"] != "PyPI" or canonicalize_name(package["name"]) != name:
            continue
        if version in affected.get("versions", ()):
            return True
        if any(_within(span["events"], version) for span in affected.get("ranges", ()) if span["type"] == "ECOSYSTEM"):
            return True
    return False


def _within(events: list[dict[str, str]], version: str) -> bool:
    """Each event turns the answer for the versions from there on, in the order of versions: files keep no order."""
    ours, inside = Version(version), False
    for bound, kind in sorted(_bounds(events), key=lambda event: event[0]):
        if kind == "introduced" and ours >= bound:
            inside = True
        elif (kind == "fixed" and ours >= bound) or (kind == "last_affected" and ours > bound):
            inside = False
    return inside


def _bounds(events: list[dict[str, str]]) -> Iterator[tuple[Version, str]]:
    for event in events:
        for kind, at in event.items():
            with suppress(InvalidVersion):
                yield Version(str(at)), kind


def main() -> int:
    """Print what applies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("checkout", type=Path)
    arguments = parser.parse_args()
    pinned = pins(arguments.requirements.read_text("utf-8"))
    known = list(advisories(arguments.checkout))
    if not known:
        sys.exit(f"no advisories under {arguments.checkout / 'vulns'}")
    newest = max(str(one["modified"]) for one in known)[:10]
    found = [(one, name, version) for one in known for name, version in pinned if applies(one, name, version)]
    for advisory, name, version in found:
        print(f"{name} {version}: {advisory['id']} {' '.join(advisory.get('aliases', ()))}")
    names = {name for name, _ in pinned}
    told_of = names & {canonicalize_name(part["package"]["name"]) for one in known for part in one["affected"]}
    print(
        f"{len(pinned)} pins, {len(known)} advisories, the newest of {newest}; "
        f"of {len(told_of)} of {len(names)} packages there are any; {len(found)} apply"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
