"""The files of the project, as git sees them: the tracked, and those about to be."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADAPTERS = sorted(each.parent.name for each in ROOT.glob("tracer/adapters/*/__init__.py"))
"""The packages of `tracer.adapters`: each records one framework."""


def project_files() -> list[Path]:
    """Return the paths, relative to the checkout, of all files that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(path for name in set(listing.split("\0")) if (path := Path(name)).name)


def text_of(path: Path) -> str | None:
    """Return a file's text, or None where it has none or was deleted."""
    try:
        return (ROOT / path).read_text()
    except (UnicodeDecodeError, FileNotFoundError):
        return None
