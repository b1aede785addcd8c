"""Modules joined into one script."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.web.page.script import ScriptInvalid, joined

STATIC = Path(__file__).parents[4] / "service/web/page/static"
MODULES = sorted(STATIC.rglob("*.js"))


def written(folder: Path, **modules: str) -> Path:
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text)
    return folder


def test_a_module_comes_once_and_after_what_it_imports(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        main='import { b } from "./b.js";\nimport { a as first } from "./a.js";\nb(first);\n',
        b='import * as all from "./a.js";\n// why\n/** What.\n * @type {x} */\nexport function b() {\n  all.a();\n}\n',
        a="const hidden = 1;\nexport const a = () => hidden;\n",
    )
    assert joined(folder, "main.js") == (
        "const m0=(()=>{\nconst hidden = 1;\nconst a = () => hidden;\nreturn{a}})();\n"
        "const m1=(()=>{\nconst all=m0;\nfunction b() {\nall.a();\n}\nreturn{b}})();\n"
        "const { b }=m1;\nconst { a:first }=m0;\nb(first);\n"
    )


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"main": 'import { a } from "./a.js";\n'}, "is not there"),
        ({"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\n'}, "imports itself"),
        ({"main": 'import a from "./a.js";\n'}, "not supported"),
        ({"main": "export default 1;\n"}, "not supported"),
    ],
)
def test_what_cannot_be_joined_is_named(tmp_path: Path, modules: dict[str, str], message: str) -> None:
    with pytest.raises(ScriptInvalid, match=message):
        joined(written(tmp_path, **modules), "main.js")


def test_every_module_of_the_page_is_used() -> None:
    script = joined(STATIC, "main.js")
    assert script.count("=(()=>{\n") == len(MODULES) - 1


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_has_at_most_300_lines_and_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= 300
    assert lines[0].startswith(("// ", "/** "))


def test_a_folder_has_at_most_14_modules() -> None:
    counts = {folder.name: len(list(folder.glob("*.js"))) for folder in STATIC.rglob("*") if folder.is_dir()}
    assert {name: count for name, count in counts.items() if count > 14} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_nothing_that_runs_over_lines_is_changed_by_leaving_out_indentation(path: Path) -> None:
    """A template string over lines would lose its indentation."""
    assert [line for line in path.read_text("utf-8").splitlines() if line.count("`") % 2] == []
