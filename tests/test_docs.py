"""Promises about the documentation: links and references have targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
PAGES = [
    ROOT / name
    for name in (
        *(path.name for path in sorted(ROOT.glob("*.md"))),
        *(
            str(path.relative_to(ROOT))
            for path in sorted(ROOT.glob("[a-z]*/**/*.md"))
            if "node_modules" not in path.parts  # of `make clients`
        ),
    )
]
FIGURES = [ROOT / "docs/benchmarks.md", *sorted((ROOT / "docs/figures").glob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"(?<![\w./~-])((?:[\w.-]+/)+[\w.-]+\.(?:py|sh|toml|md|ya?ml|txt|c|Dockerfile))(?![\w/])")
MADE = re.compile(r"NAME|VERSION|OWNER|\.\.\.|…")
"""Placeholders in paths, which need not exist."""
SECTION = re.compile(r'(docs/[\w/-]+\.md),\s+(?:# )?"([^"]+)"')
"""A page and one of its sections, as comments and docstrings cite them."""


def _anchors(page: Path) -> Iterator[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{count}" if count else slug


def _titles(page: Path) -> list[str]:
    """Return a page's headings and the bold words that begin its paragraphs, without dates in brackets."""
    text = FENCE.sub("", page.read_text("utf-8"))
    found = re.findall(r"^(?:#{1,6} +(.+?)|\*\*(.+?)[.:]?\*\*.*) *$", text, re.MULTILINE)
    return [re.sub(r" \(\d{4}-.*\)", "", heading or bold) for heading, bold in found]


def _broken(page: Path) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or not file.is_relative_to(ROOT):
            yield f"{target}: no such file in the repository"
        elif anchor and anchor not in set(_anchors(file)):
            yield f"{target}: no such heading"


def _absent(page: Path) -> Iterator[str]:
    for name in CITED.findall(page.read_text("utf-8")):
        if name.partition("/")[0] in FOLDERS and not MADE.search(name) and not (ROOT / name).exists():
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_of_the_repository(page: Path) -> None:
    assert list(_broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_cites_no_file_that_the_repository_lacks(page: Path) -> None:
    assert list(_absent(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_points_to_nothing_beside_the_repository(page: Path) -> None:
    assert re.findall(r"\.\./shared\S*|\bdesign\.md\b", page.read_text("utf-8")) == []


@pytest.mark.parametrize("folder", ["benchmarks", "docker", "engines", "export", "retouch", "service", "training"])
def test_the_code_cites_only_sections_that_a_page_has(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".toml", ".yaml", ".cpp")]
    cited = {found for path in files for found in SECTION.findall(path.read_text("utf-8"))}
    assert {(page, title) for page, title in cited if title not in _titles(ROOT / page)} == set()


def test_the_architecture_names_only_files_that_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    starts = [ROOT, *(path for path in (ROOT / "service").rglob("*") if path.is_dir()), ROOT / "service"]
    names = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", text))
    assert len(names) > 40
    assert sorted(name for name in names if not any((start / name).exists() for start in starts)) == []


@pytest.mark.parametrize("page", FIGURES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_of_figures_has_at_most_250_lines_and_prose_of_at_most_120_characters_a_line(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert len(lines) <= 250
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_the_changelog_has_at_most_60_lines_a_version() -> None:
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert {
        version.partition("\n")[0]: len(version.splitlines()) for version in versions if len(version.splitlines()) > 60
    } == {}
