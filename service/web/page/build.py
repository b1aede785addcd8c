"""Build of the page: the files of `static`, joined and minified into the four of `built`, which the server sends.

    python -m service.web.page.build          # or make page; needs the extra test

The JavaScript modules become the body of one function, so a name may be declared only once in all of them, and the
minifier can shorten every name. What is built is committed: serving needs no minifier.
"""

from __future__ import annotations

import re
from pathlib import Path

import minify

_IMPORT = re.compile(r'^import \{ [\w$]+(?:, [\w$]+)* \} from "(?P<path>[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) ?\*? ?[\w$])", re.MULTILINE)
_DECLARED = re.compile(r"^(?:async )?(?:function\*?|class|const|let) ([\w$]+)", re.MULTILINE)
_FOLDER = Path(__file__).parent


class ScriptInvalid(ValueError):
    """A module imports a missing file, imports itself through others, or declares another module's name."""


def built(folder: Path) -> dict[str, str]:
    """Return the files of the page, by name, from the sources in `folder`.

    Raises:
        ScriptInvalid: the modules cannot be joined (see `joined`).
        minify.MinifyError: a source breaks the syntax of its language.
    """
    return {
        "index.html": minify.string("text/html", (folder / "index.html").read_text("utf-8")),
        "app.js": minify.string("text/javascript", joined(folder, "main.js")),
        "page.css": minify.string("text/css", (folder / "page.css").read_text("utf-8")),
        "icon.svg": minify.string("image/svg+xml", (folder / "icon.svg").read_text("utf-8")),
    }


def joined(folder: Path, entry: str) -> str:
    """Join the module `entry` of `folder` and all that it imports into one module, each after those it imports.

    Raises:
        ScriptInvalid: an imported file is missing, a module imports itself through others, two modules declare the
            same name, or an import or export has a form that is not supported (default, dynamic, renamed, re-export).
    """
    order: list[Path] = []
    _visit((folder / entry).resolve(), (), order)
    declared: dict[str, str] = {}
    bodies = []
    for path in order:
        bodies.append(_body(path))
        for name in _DECLARED.findall(bodies[-1]):
            if name in declared:
                raise ScriptInvalid(f"{name} is declared in {declared[name]} and in {path.name}; rename one of them")
            declared[name] = path.name
    return f"await (async () => {{\n{''.join(bodies)}}})();\n"


def _visit(path: Path, above: tuple[Path, ...], order: list[Path]) -> None:
    if path in above:
        raise ScriptInvalid(f"{path.name} imports itself through {', '.join(p.name for p in above)}")
    if path in order:
        return
    if not path.is_file():
        raise ScriptInvalid(f"{path} is imported by {above[-1].name if above else 'the page'}, but does not exist")
    for found in _IMPORT.finditer(path.read_text("utf-8")):
        _visit((path.parent / found["path"]).resolve(), (*above, path), order)
    order.append(path)


def _body(path: Path) -> str:
    """Return the module's code without imports and exports."""
    body = _EXPORT.sub("", _IMPORT.sub("", path.read_text("utf-8")))
    if found := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ScriptInvalid(f"{path.name}: {found[0]!r} is not supported; name what is imported and exported")
    return body


if __name__ == "__main__":
    for name, text in built(_FOLDER / "static").items():
        (_FOLDER / "built" / name).write_text(text, "utf-8")
