"""Write the install commands of all pages: `make docs-install`.

A page marks a block with `<!-- install: NAME … -->` and `<!-- /install -->`. The commands of the
names are in a table of `docs/contributing/releasing.md`, once for a clone and once for the package
indexes. This page also states which of the two the pages show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "contributing" / "releasing.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "server/README.md", "clients/typescript/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

BLOCK = re.compile(
    r"<!-- install: (?P<names>[\w -]+) -->\n(?P<text>.*?)<!-- /install -->", re.DOTALL
)
NOTE = """\
The packages are not published yet. Build them in a clone: `make wheels`. Then run in the clone's
folder, in a virtual environment (`python3 -m venv env && . env/bin/activate && pip install uv`):"""
SECOND = "In another terminal, in the same folder and environment:"
"""Follows the command of the server, which does not end."""
_ROW = re.compile(r"^\| `([\w-]+)` \| `([^`|]+)` \| `([^`|]+)` \|$", re.MULTILINE)
_SHOWN = re.compile(r"^The pages show the column \*(today|published)\*\.$", re.MULTILINE)


@dataclass(frozen=True)
class Install:
    """How the packages of a page are installed."""

    today: str
    """From the wheels in `dist`."""
    published: str
    """From the package indexes."""


def installs() -> dict[str, Install]:
    """Return the table, by name."""
    return {name: Install(*commands) for name, *commands in _ROW.findall(_table())}


def page_with_blocks(text: str) -> str:
    """Return a page with the current commands in its blocks.

    Raises:
        KeyError: The table lacks a name.
    """
    rows, shown = installs(), _SHOWN.findall(_table())[0]

    def block(match: re.Match[str]) -> str:
        commands = [getattr(rows[name], shown) for name in match["names"].split()]
        note = f"{NOTE}\n\n" if any("dist" in each for each in commands) else ""
        fences = f"\n\n{SECOND}\n\n".join(f"```sh\n{each}\n```" for each in commands)
        return f"<!-- install: {match['names']} -->\n{note}{fences}\n<!-- /install -->"

    return BLOCK.sub(block, text)


def _table() -> str:
    return TABLE.read_text(encoding="utf-8")


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(page_with_blocks(page.read_text(encoding="utf-8")), encoding="utf-8")
