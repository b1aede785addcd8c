"""The page's sources, built into the files that the server sends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.web.page.build import ScriptInvalid, built, joined

PAGE = Path(__file__).parents[4] / "service/web/page"
STATIC = PAGE / "static"
MODULES = sorted(STATIC.rglob("*.js"))


def written(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text)
    return folder


def test_what_is_committed_is_what_is_built() -> None:
    committed = {path.name: path.read_text("utf-8") for path in (PAGE / "built").iterdir()}
    assert built(STATIC) == committed, "make page"


def test_a_module_comes_once_and_after_what_it_imports(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        main='import { b } from "./b.js";\nimport { a } from "./a.js";\nb(a);\n',
        b='import { a } from "./a.js";\n// why\n/** What.\n * @type {x} */\nexport function b() {\n  a();\n}\n',
        a="const hidden = 1;\nexport const a = () => hidden;\n",
    )
    assert joined(folder, "main.js").splitlines() == [
        "await (async () => {",
        *("const hidden = 1;", "const a = () => hidden;"),
        *("// why", "/** What.", " * @type {x} */", "function b() {", "  a();", "}"),
        "b(a);",
        "})();",
    ]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"main": 'import { a } from "./a.js";\n'}, "does not exist"),
        ({"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\n'}, "imports itself"),
        ({"main": 'import a from "./a.js";\n'}, "not supported"),
        ({"main": 'import { a as b } from "./a.js";\n', "a": "export const a = 1;\n"}, "not supported"),
        ({"main": "export default 1;\n"}, "not supported"),
        (
            {"main": 'import { b } from "./b.js";\nconst a = 1;\n', "b": "let a;\nexport const b = 1;\n"},
            "declared in b.js",
        ),
    ],
)
def test_what_cannot_be_joined_is_named(tmp_path: Path, modules: dict[str, str], message: str) -> None:
    with pytest.raises(ScriptInvalid, match=message):
        joined(written(tmp_path, **modules), "main.js")


def test_every_module_of_the_page_is_used() -> None:
    reached = {STATIC / "main.js"}
    while more := {found for path in reached for found in imported(path)} - reached:
        reached |= more
    assert reached == set(MODULES)


def imported(path: Path) -> list[Path]:
    return [
        (path.parent / found).resolve()
        for found in re.findall(r'^import .* from "([^"]+)";$', path.read_text("utf-8"), re.M)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_has_at_most_300_lines_and_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= 300
    assert lines[0].startswith(("// ", "/** "))


def test_a_folder_has_at_most_14_modules() -> None:
    counts = {folder.name: len(list(folder.glob("*.js"))) for folder in STATIC.rglob("*") if folder.is_dir()}
    assert {name: count for name, count in counts.items() if count > 14} == {}
