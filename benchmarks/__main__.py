"""Lists the programs of the benchmarks, by room, with what each measures.

    python -m benchmarks
    python -m benchmarks.ROOM.PROGRAM --help    # what a program measures, an example, and its arguments

docs/benchmarks.md has the figures, and the command that prints each of them.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent


def programs() -> Iterator[tuple[str, str]]:
    """Yield the module and the first line of the docstring of every program; none of them is imported.

    Other servers (`*_server.py`), which a comparison starts, are left out.
    """
    for path in sorted(FOLDER.glob("*/*.py")):
        text = path.read_text("utf-8")
        if '\nif __name__ == "__main__":' in text and not path.stem.endswith("_server"):
            name = path.parent.name if path.stem == "__main__" else f"{path.parent.name}.{path.stem}"
            yield f"benchmarks.{name}", (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def main() -> None:
    """Print the list."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for module, purpose in programs():
        print(f"python -m {module}\n    {purpose}")


if __name__ == "__main__":
    main()
