"""The page's modules, joined into one script."""

from __future__ import annotations

import re
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
        main='import { b } from "./b.js";\nimport { a } from "./a.js";\nb(a);\n',
        b='import { a } from "./a.js";\n// why\n/** What.\n * @type {x} */\nexport function b() {\n  a();\n}\n',
        a="const hidden = 1;\nexport const a = () => hidden;\n",
    )
    assert joined(folder, "main.js") == "let A=1;let a=()=>A;function b(){a()}b(a);"


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("const a = b + +c - -d;", "let a=b+ +c- -d;"),
        ("a(\"b + c\", 'd , e', `f  ${g} // h`);", "a(\"b + c\",'d , e',`f  ${g} // h`);"),
        ("a = b.replace(/[^ ] + \\/ /g, c); // why", "a=b.replace(/[^ ] + \\/ /g,c);"),
        ('a = "http://b"; // why\n  b();', 'a="http://b";b();'),
        ("a = b / c / d;", "a=b/c/d;"),
        ("a\n  .b()", "a\n.b()"),
        ("if (!a) return [b] ;", "if(!a)return[b];"),
        ('a = true; if (b) return false; "true";', 'a=!0;if(b)return !1;"true";'),
        ('if (a) {\n  b(";}");\n}\nc = { d };', 'if(a){b(";}")}c={d};'),
    ],
)
def test_spaces_and_comments_are_left_out_where_they_mean_nothing(tmp_path: Path, code: str, sent: str) -> None:
    assert joined(written(tmp_path, main=f"{code}\n"), "main.js").rstrip("\n") == sent


def test_private_names_become_letters_and_nothing_else_does(tmp_path: Path) -> None:
    code = (
        'class A {\n  #long = 1;\n  async #other() {\n    return this.#long + "#long" + $(`#${this.#other}`);\n  }\n}\n'
    )
    sent = 'class A{#a=1;async #b(){return this.#a+"#long"+$(`#${this.#b}`)}}'
    assert joined(written(tmp_path, main=code), "main.js") == sent


def test_constants_become_letters_in_templates_too_but_not_in_texts(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        main='import { LONG } from "./a.js";\nconst TOLD = LONG;\n'
        'say(`TOLD ${TOLD ? "TOLD" : 1}`, Node.LONG, ...LONG, /TOLD/, JSON, "TOLD");\n',
        a="export const LONG = 1;\n",
    )
    sent = 'let B=1;let A=B;say(`TOLD ${A ? "TOLD" : 1}`,Node.LONG,...B,/TOLD/,JSON,"TOLD");'
    assert joined(folder, "main.js").rstrip("\n") == sent


def test_functions_become_letters_but_for_those_named_as_a_property_may_be(tmp_path: Path) -> None:
    code = (
        "function plain() {}\nfunction get() {}\nfunction size() {}\nfunction key() {}\n"
        "const { size } = map.get(plain);\ncall({ key: 1 }, ...plain(key));\n"
    )
    kept = "function get(){}function size(){}function key(){}let{size}"
    sent = f"function A(){{}}{kept}=map.get(A);call({{key:1}},...A(key));"
    assert joined(written(tmp_path, main=code), "main.js").rstrip("\n") == sent


def test_names_that_functions_declare_become_letters_that_nothing_else_is_called(tmp_path: Path) -> None:
    code = (
        "function a(list) {\n  const total = 0;\n  for (const item of list) add(total, item);\n  let size;\n}\n"
        "b.size;\nlist((item) => item + other);\n"
    )
    sent = "function a(t){let n=0;for(let e of t)add(n,e);let i}b.size;t((e)=>e+other);"
    assert joined(written(tmp_path, main=code), "main.js").rstrip("\n") == sent


def test_two_functions_use_the_same_letters_whatever_an_object_elsewhere_has(tmp_path: Path) -> None:
    code = (
        "function one(value, [, from], step = 2) {\n  for (const row of from) send(value, row);\n}\n"
        "function two() {\n  try {\n    one({ value: 1 });\n  } catch (error) {\n    say(error, one);\n  }\n"
        "  b.catch(async () => 1);\n}\n"
        "class Three {\n  row(value) {\n    return value + two;\n  }\n}\n"
    )
    sent = (
        "function A(e,[,t],i=2){for(let n of t)send(e,n)}"
        "function B(){try{A({value:1})}catch(e){say(e,A)}b.catch(async()=>1)}"
        "class C{row(e){return e+B}}"
    )
    assert joined(written(tmp_path, main=code), "main.js").rstrip("\n") == sent


def test_a_field_keeps_its_name_though_a_method_declares_the_same(tmp_path: Path) -> None:
    code = "class A {\n  shown = 1;\n  b() {\n    const shown = 2;\n    return shown;\n  }\n}\nc(a.shown);\n"
    sent = "class A{shown=1;b(){let shown=2;return shown}}c(a.shown);"
    assert joined(written(tmp_path, main=code), "main.js").rstrip("\n") == sent


@pytest.mark.parametrize(
    "code",
    [
        "const PNG = 1;\nsend({ PNG });",
        "const PNG = 1;\nsend({ other: 2, PNG: 3 });",
        "function a() {\n  let start;\n  send({\n    start,\n  });\n}",
        "const start = 1;\nnew Stream({ start(controller, more) {\n  begin();\n} });",
        "class A {\n  async *names() {}\n}\nconst names = 1;",
    ],
)
def test_a_name_that_an_object_has_stays_as_the_browser_may_ask_for_it(tmp_path: Path, code: str) -> None:
    name = re.findall(r"PNG|start|names", code)[0]
    script = joined(written(tmp_path, main=f"{code}\n"), "main.js")
    assert len(re.findall(rf"\b{name}\b", script)) == code.count(name)


def test_the_names_that_are_used_most_get_one_letter_and_the_others_two(tmp_path: Path) -> None:
    names = [f"name{i}" for i in range(60)]
    code = "".join(f"let {name};\n" for name in names) + f"a({names[-1]});\n"
    sent = joined(written(tmp_path, main=code), "main.js").rstrip("\n")
    assert sent.startswith("let B;let C;")
    assert sent.endswith(";let Ba;let A;a(A);")


def test_a_name_between_the_signs_of_a_choice_is_no_key(tmp_path: Path) -> None:
    code = "const first = 1;\nconst SECOND = 2;\na(b ? first : SECOND, b ? SECOND : first);\n"
    sent = "let A=1;let B=2;a(b?A:B,b?B:A);"
    assert joined(written(tmp_path, main=code), "main.js").rstrip("\n") == sent


def test_a_name_in_a_call_or_list_within_an_object_is_no_key(tmp_path: Path) -> None:
    code = "const first = 1;\nconst second = 2;\na({ b: c((d), first, [e, second, f], g) });\n"
    assert joined(written(tmp_path, main=code), "main.js").rstrip("\n").endswith("a({b:c((d),A,[e,B,f],g)});")


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


def test_every_constant_of_the_page_has_one_name_in_the_script() -> None:
    constants = {
        name
        for path in MODULES
        for name in re.findall(r"^(?:export )?const ([A-Z][A-Z0-9_]+) =", path.read_text(), re.M)
    }
    script = re.sub(r'"[^"]*"', '""', joined(STATIC, "main.js"))
    left = {name for name in constants if re.search(rf"\b{name}\b", script)}
    assert {name for name in left if not re.search(rf"\b(?:const|let) {name}=", script)} == set()
    assert len(left) < len(constants) / 4


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_regular_expression_follows_a_sign_that_no_division_does(path: Path) -> None:
    """Elsewhere it would be read as two divisions, and its content rewritten as code."""
    elsewhere = r"(?:\b(?:return|typeof|case|yield|await|of|in)|[;{>])\s*/(?![*/\s])|^\s*/(?![*/])"
    lines = (re.sub(r'"[^"]*"|`[^`]*`|//.*', '""', line) for line in path.read_text("utf-8").splitlines())
    assert [line for line in lines if re.search(elsewhere, line) and not line.lstrip().startswith("*")] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_template_runs_over_lines_or_holds_another_or_an_object(path: Path) -> None:
    """Otherwise text and code in a template could not be told apart without parsing the language."""
    lines = path.read_text("utf-8").splitlines()
    assert [line for line in lines if line.count("`") % 2 or re.search(r"\$\{[^}`]*(?:\{|`[^`]*[`$])", line)] == []
