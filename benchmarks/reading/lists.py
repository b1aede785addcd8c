"""Draws what readers with fresh eyes are asked about the source: changes, names and docstrings, by a seed.

    .venv/bin/python -m benchmarks.reading.lists --seed 1 --out FOLDER

Readers get the list of files (`files.txt`) and the drawn questions, nothing else: for a change they name the file that
they would open first; of names and docstrings they mark those that they cannot explain. FOLDER/changes.md has the
changes without the tests that CHANGELOG.md cites for them, because those would give the file away.
docs/measurements/readers.md has the rounds.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engines", "export", "retouch", "service", "training")
_CITATION = re.compile(r"\s*\(`tests/[^)]*\)|\s*`tests/[^`]*`,?")


@dataclass(frozen=True)
class Definition:
    """A class, function or method: where it stands, its dotted name, and its docstring ('' without one)."""

    file: str
    name: str
    docstring: str


def changes(changelog: str) -> list[str]:
    """Return the entries of a changelog, one line each, without the tests that they cite."""
    entries: list[str] = []
    open_entry = False
    for line in changelog.splitlines():
        if line.startswith("- "):
            entries.append(line[2:])
            open_entry = True
        elif open_entry and line.startswith("  "):
            entries[-1] += " " + line.strip()
        else:
            open_entry = False
    return [_CITATION.sub("", entry) for entry in entries]


def definitions(file: str, source: str) -> Iterator[Definition]:
    """Yield the classes, functions and methods of a file, without dunder methods and what functions define."""
    open_nodes: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while open_nodes:
        prefix, parent = open_nodes.pop()
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if isinstance(node, ast.ClassDef):
                open_nodes.append((f"{prefix}{node.name}.", node))
            if not node.name.startswith("__"):
                yield Definition(file, prefix + node.name, ast.get_docstring(node) or "")


def tracked(root: Path) -> list[str]:
    """Return the files that git tracks, sorted.

    Raises:
        subprocess.CalledProcessError: `root` is no git repository.
    """
    return subprocess.check_output(["git", "-C", str(root), "ls-files"], text=True).splitlines()


def draw(root: Path, seed: int) -> dict[str, str]:
    """Return the text of each file that readers get, by its name."""
    rng = random.Random(seed)
    files = tracked(root)
    sources = [file for file in files if file.endswith(".py") and file.split("/")[0] in PACKAGES]
    found = [each for file in sources for each in definitions(file, (root / file).read_text("utf-8"))]
    entries = rng.sample(changes((root / "CHANGELOG.md").read_text("utf-8")), 30)
    names = rng.sample(found, 60)
    described = rng.sample([each for each in found if each.docstring], 60)
    return {
        "files.txt": "\n".join(file for file in files if not file.startswith(("docs/", "models/"))) + "\n",
        "changes.md": _numbered(entries),
        "names.md": _numbered([f"`{each.name}` in {each.file}" for each in names]),
        "docstrings.md": _numbered([f"`{each.name}` in {each.file}:\n\n{each.docstring}\n" for each in described]),
    }


def _numbered(entries: Sequence[str]) -> str:
    return "".join(f"{index}. {entry}\n" for index, entry in enumerate(entries, 1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw by the seed and write the four files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder that the files are written to")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, text in draw(ROOT, given.seed).items():
        (given.out / name).write_text(text, "utf-8")
        print(given.out / name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
