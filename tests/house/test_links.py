"""Links in the documents lead to files and headings that exist."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from pathlib import Path

import pytest

from tests.house.project_files import ROOT, project_files, text_of

PAGES = [each for each in project_files() if each.suffix == ".md" and (ROOT / each).exists()]

_CODE = re.compile(r"^```.*?^```$|``.*?``|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and the site build them."""
    text = re.sub(r"^```.*?^```$", "", text_of(page) or "", flags=re.DOTALL | re.MULTILINE)
    return frozenset(_anchor(each) for each in _HEADING.findall(text))


def _anchor(heading: str) -> str:
    plain = re.sub(r"\]\([^)]*\)|[`*\[]", "", unicodedata.normalize("NFKC", heading))
    return re.sub(r"[^\w\- ]", "", plain).strip().lower().replace(" ", "-")


def _is_broken(page: Path, path: str, anchor: str) -> bool:
    target = (ROOT / page.parent / path).resolve() if path else ROOT / page
    if not target.exists():
        return True
    return bool(anchor) and anchor not in _anchors(target.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_in_documents_point_to_existing_files_and_headings(page: Path) -> None:
    links = _LINK.findall(_CODE.sub("", text_of(page) or ""))

    assert [f"{path}#{anchor}" for path, anchor in links if _is_broken(page, path, anchor)] == []


def test_navigation_of_the_site_has_every_page() -> None:
    groups = tomllib.loads(text_of(Path("zensical.toml")) or "")["project"]["nav"]
    listed = {page for group in groups for pages in group.values() for page in pages}
    pages = {each.as_posix().removeprefix("docs/") for each in PAGES if each.parts[0] == "docs"}

    assert {each for each in pages - listed if not each.startswith("decisions/")} == set()
