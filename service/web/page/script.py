"""The page's JavaScript modules, joined and minified: one request instead of fifty, and a third fewer bytes to send.

The modules share one scope, so a name may be declared only once in all of them, and each statement must end with a
semicolon. Comments, indentation, spaces around punctuation and semicolons before a brace are removed. Private names
(`#name`) and declared names are shortened to letters, the same ones in every function, which compresses best. `const`
becomes `let`, `true` and `false` become `!0` and `!1`; strings, templates and regular expressions stay unchanged. No
declared name may be that of a global that the page uses.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Container, Iterable
from pathlib import Path

_IMPORT = re.compile(r'^import \{ [\w$]+(?:, [\w$]+)* \} from "(?P<path>[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) ?\*? ?[\w$])", re.MULTILINE)
_DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let) ([\w$]+)", re.MULTILINE)
_STATEMENT = re.compile(r"^(?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_LOCAL = re.compile(
    r"""\blet\ (\w+) | \blet(\[[\w,]+]) | \bcatch\((\w+)\)\{ | \bfunction\b[^(]*\(([^()]*)\) | \(([^()]*)\)=>
        | (?<=[;}{])(?!(?:else\ )?(?:if|for|while|switch)\b)[\w#*\ ]+\(([^()]*)\)\{                # a method""",
    re.VERBOSE,
)
_LOCAL_NAME = re.compile(r"(?:^|[,[]|\.\.\.)(\w+)(?=[],=]|$)")
_FIELD = re.compile(r"^  (?:static )?(\w+)(?: =|;)", re.MULTILINE)
_PRIVATE = re.compile(r"^ +(?:static |async |get |set )*#(\w+)", re.MULTILINE)
_PRIVATE_USED = re.compile(r"(?<=[.(\s])#(\w+)")
_KEPT = r"""(?P<kept> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | `(?:\\.|[^`\\])*`
    | (?:(?<=[(,=:!&|?\[])|(?<=[(,=:!&|?]\ )) / (?![*/\ ]) (?:\\.|\[(?:\\.|[^]\n])*]|[^/\\\n])+ / )"""
_TEXT_OR_CODE = re.compile(_KEPT + r""" | [^"'`/]+ | /""", re.VERBOSE)
_TOKEN = re.compile(
    _KEPT
    + r"""
    | \s*//[^\n]* | \s*/\*.*?\*/                            # comments
    | ;(?=\s*\})
    | (?P<word>\b(?:const|true|false)\b)                   # has a shorter form
    | (?:(?<![-+])\ )?(?P<mark>(?:(?!;\s*\})[-+*%&|^<>=!?:;,.{}()\[\]~])+|/)(?:\ (?![-+]))?
    | (?P<line>\n)\s*""",
    re.VERBOSE | re.DOTALL,
)
_IN_TEMPLATE = re.compile(r"(?<=\$\{)[^}]*")
_LETTERS = "etnirsoaclhdpmfugbvywkxqjz"  # the most frequent ones of the script first, which compresses best
_SHORTER = {"const": "let", "true": "!0", "false": "!1"}
_NAME = re.compile(r"(?<![\w$#])(?:(?<!\.)|(?<=\.\.\.))[A-Za-z]\w+(?![\w$])")
_READ = re.compile(r"(?<!\.)\.(\w+)")
_GROUP = re.compile(r"\([^(){}]*\)|\[[^][{}]*\]")
_KEY = re.compile(r"(?<=[{,])\w+(?=[,}=:])|(?<!\w)(?<!function )(?<!function\*)\w+(?=@\{)")
_NEEDLESS_LINE = re.compile(r"(?<=[;,{}(\[])\n|\n(?=[})\]])")


class ScriptInvalid(ValueError):
    """A module imports a missing file, imports itself through others, or declares another module's name."""


def joined(folder: Path, entry: str) -> str:
    """Join the module `entry` of `folder` and all that it imports into one module, each after those it imports.

    Raises:
        ScriptInvalid: an imported file is missing, a module imports itself through others, two modules declare the
            same name, or an import or export has a form that is not supported (default, dynamic, renamed, re-export).
    """
    order: list[Path] = []
    _visit((folder / entry).resolve(), (), order)
    declared: dict[str, str] = {}
    for path in order:
        for name in _DECLARED.findall(path.read_text("utf-8")):
            if name in declared:
                raise ScriptInvalid(f"{name} is declared in {declared[name]} and in {path.name}; rename one of them")
            declared[name] = path.name
    code = "".join(_minified(path, declared) for path in order)
    read = (name for name in _READ.findall(code) if not name.isupper())  # a class may have a field of that name
    return _with_short_names(code, declared, string.ascii_uppercase, read)


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


def _with_short_names(code: str, names: Iterable[str], first: str, kept: Iterable[str]) -> str:
    """Return the code with `names` shortened, except names in `kept` and names of an object's keys or methods.

    The most used names get one letter of `first`; the others get such a letter and a lower-case one.
    """
    stay = {*_keys(code), *kept}
    renamed = [name for name in dict.fromkeys(names) if _NAME.fullmatch(name) and name not in stay]
    used = Counter(_NAME.findall(code))
    renamed.sort(key=lambda name: -used[name])
    taken = {"do", "if", "in", *re.findall(r"[\w$]+", code)}
    two = ("".join(pair) for pair in itertools.product(first, _LETTERS))
    letters = (name for name in itertools.chain(first, two) if name not in taken)
    short = dict(zip(renamed, letters, strict=False))

    def shortened(part: re.Match[str]) -> str:
        if part["kept"] is None:
            return _NAME.sub(lambda name: short.get(name[0], name[0]), part[0])
        return _IN_TEMPLATE.sub(lambda code: _TEXT_OR_CODE.sub(shortened, code[0]), part[0])

    return _TEXT_OR_CODE.sub(shortened, code)


def _keys(code: str) -> set[str]:
    """Return all names that may be an object's key or method: those that braces hold, and no other brackets inside."""
    code = _TEXT_OR_CODE.sub(lambda part: '""' if part["kept"] else part[0], code)
    while (fewer := _GROUP.sub("@", code)) != code:
        code = fewer
    return set(_KEY.findall(code))


def _with_short_locals(statement: str, declared: Container[str]) -> str:
    """Return a statement of a module, minified, with lower-case letters for the names that it declares inside."""
    code = _NEEDLESS_LINE.sub("", _TOKEN.sub(_sent, statement))
    lists = (re.sub(r"\{[^{}]*}", "", found[found.lastindex or 0]) for found in _LOCAL.finditer(code))
    names = (name for found in lists for name in _LOCAL_NAME.findall(found) if name not in declared)
    return _with_short_names(code, names, _LETTERS, _FIELD.findall(statement))


def _sent(token: re.Match[str]) -> str:
    return _SHORTER[token["word"]] if token["word"] else token["kept"] or token["mark"] or token["line"] or ""


def _minified(path: Path, declared: Container[str]) -> str:
    """Return the module's code, minified, without imports and exports; `declared`: names that other modules declare."""
    body = _EXPORT.sub("", _IMPORT.sub("", path.read_text("utf-8")))
    if found := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ScriptInvalid(f"{path.name}: {found[0]!r} is not supported; name what is imported and exported")
    letters = dict(zip(dict.fromkeys(_PRIVATE.findall(body)), string.ascii_letters, strict=False))
    body = _PRIVATE_USED.sub(lambda used: f"#{letters.get(used[1], used[1])}", body)
    return "".join(_with_short_locals(statement, declared) for statement in _STATEMENT.split(body)).lstrip("\n")
