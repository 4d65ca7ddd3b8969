"""Build hook: put the server, the viewer, the migrations and the demonstration into the wheel.

In the wheel, everything is in the package `tracer_server`, so that the user's own `api` and the
server's do not meet. An editable install skips all of this: it reads the checkout.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = {"api": "api", "migrations": "migrations", "examples/health": "health"}
"""Folders of the checkout or of the source archive, and their names in `tracer_server`."""

IMPORT = re.compile(r"^(\s*(?:from|import) )api\b", re.MULTILINE)


class ServerBuild(BuildHookInterface[Any]):
    """Adds `FOLDERS`: as they are to the source archive, with new imports to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders, or raise if the viewer was not built."""
        if version == "editable":
            return
        folder = Path(self.root)
        root = folder if (folder / "api").is_dir() else folder.parent
        viewer = root / "api" / "static" / "index.html"
        if not viewer.is_file():
            message = f"{viewer} is missing: run `make dist`, which builds the viewer first."
            raise FileNotFoundError(message)
        if self.target_name == "sdist":
            build_data["force_include"] |= {str(root / name): name for name in FOLDERS}
            build_data["force_include"][str(root / "LICENSE")] = "LICENSE"
            return
        self._copy = Path(mkdtemp(prefix="tracer_server-"))
        ours = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder / "tracer_server", self._copy / "tracer_server", ignore=ours)
        for source, name in FOLDERS.items():
            shutil.copytree(root / source, self._copy / "tracer_server" / name, ignore=ours)
        for each in self._copy.rglob("*.py"):
            text = each.read_text("utf-8")
            each.write_text(IMPORT.sub(r"\1tracer_server.api", text), "utf-8")
        build_data["force_include"][str(self._copy / "tracer_server")] = "tracer_server"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        if version != "editable" and self.target_name == "wheel":
            shutil.rmtree(self._copy)
