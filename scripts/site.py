"""Assemble the pages of the documentation site in `dist/pages`: `make docs`.

The site contains `docs/` and a few pages of the root. In the repository, pages also link to source
files, which the site does not contain. The site shows the path of such a file instead of a link.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "dist" / "pages"
SITE = ROOT / "dist" / "site"

# Pages of the root, by their path in the site.
ROOT_PAGES = {
    ROOT / "ARCHITECTURE.md": "explanation/architecture.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CONTRIBUTING.md": "contributing/index.md",
}
DECISIONS = "decisions/index.md"

_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def main() -> None:
    """Write the pages, in place of those of an earlier call."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES)
    places = {page: page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*") if page.is_file()}
    places |= ROOT_PAGES | {DOCS / "decisions": DECISIONS}
    for source, place in places.items():
        if source.suffix == ".md":
            text = _for_site(source, place, places)
            (PAGES / place).write_text(text, encoding="utf-8")
    (PAGES / DECISIONS).write_text(_decisions(), encoding="utf-8")
    (PAGES / "llms.txt").write_text(_for_models(), encoding="utf-8")


def _for_site(source: Path, place: str, places: dict[Path, str]) -> str:
    """Return the text of a page with its links as the site needs them."""

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = Path(os.path.normpath(source.parent / path))
        if target in places:
            return f"[{text}]({os.path.relpath(places[target], os.path.dirname(place))}{anchor})"
        name = target.relative_to(ROOT).as_posix()
        return text if name in text else f"{text} (`{name}`)"

    parts = _FENCE.split(source.read_text(encoding="utf-8"))
    return "".join(each if each.startswith("```") else _LINK.sub(link, each) for each in parts)


def publish_markdown() -> None:
    """Copy the pages as Markdown, which models read, next to the built pages."""
    for page in PAGES.rglob("*.md"):
        shutil.copyfile(page, SITE / page.relative_to(PAGES))


def _for_models() -> str:
    """Return llms.txt (llmstxt.org): the pages of the site as Markdown, by section."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}"]
    for section in site["nav"]:
        for title, pages in section.items():
            lines += ["", f"## {title}", ""]
            for page in pages:
                text = (PAGES / page).read_text(encoding="utf-8")
                name = next(line for line in text.splitlines() if line.startswith("# "))
                lines.append(f"- [{name.removeprefix('# ')}]({page})")
    return "\n".join([*lines, ""])


def _decisions() -> str:
    """Return a page that lists the decision records."""
    lines = ["# Decisions", ""]
    for page in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({page.name})")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    publish_markdown() if "--publish" in sys.argv else main()
