"""Build hook: what a real wheel holds beyond the packages, and what it must not lack.

An editable install skips all of it: it reads the migrations and the viewer from the checkout.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompleteWheel(BuildHookInterface[Any]):
    """Adds the migrations, and refuses to build a wheel that would serve no viewer."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Complete the wheel, or raise where the viewer was not built."""
        if version == "editable":
            return
        viewer = Path(self.root) / "api" / "static" / "index.html"
        if not viewer.is_file():
            message = f"{viewer} is missing: run `make wheel`, which builds the viewer first."
            raise FileNotFoundError(message)
        # Inside the package, so that no top-level `migrations` package comes into being. Here
        # rather than in pyproject.toml, where an editable install would copy them too.
        build_data["force_include"]["migrations"] = (
            "tracer/storage/postgres/administration/migrations"
        )
