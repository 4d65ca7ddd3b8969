"""Each package has a face, and code outside the package imports from it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.house.imports import Import, Package, imports_of, packages
from tests.house.project_files import ROOT, project_files, text_of

IMPORTERS = ("tracer", "api", "server", "examples", "benchmarks", "migrations", "scripts", "tests")

WITHOUT_CONTRACT = {"api", *(name for name in packages() if name.startswith("tracer.adapters"))}
"""Nothing may import `api`, except the server's distribution. The adapters share a contract."""

INNER_MODULES = {
    ("server/tracer_server/entry.py", "api.main"),
    ("tests/api/conftest.py", "tracer.storage.postgres.pool"),
    ("tests/api/conftest.py", "tracer.storage.postgres.writer"),
    ("tests/api/projects.py", "tracer.storage.postgres.pool"),
    ("tests/api/test_moved_records.py", "tracer.otel.projection.project"),
    ("tests/citus_forms.py", "tracer.storage.postgres.citus"),
    ("tests/contract/reference.py", "tracer.storage.postgres.rows"),
    ("tests/house/test_one_way.py", "tracer.storage.postgres.tables"),
    ("tests/runtime/test_cancelling_tools.py", "tracer.tools.definition"),
    ("tests/runtime/test_ended_runs.py", "tracer.tools.run"),
    ("tests/storage/postgres/test_deletion.py", "tracer.tools.run"),
    ("tests/storage/test_http_writer_spans.py", "api.otlp.routes"),
    ("tests/torture/database_way.py", "tracer.storage.postgres.pool"),
    ("tests/torture/test_killed_projectors.py", "tracer.storage.postgres.spans"),
    ("tests/torture/test_refusing_database.py", "tracer.storage.postgres.writer"),
}
"""Tests that need a limit or a key from inside a package that they do not mirror."""


@pytest.mark.parametrize("package", packages().values(), ids=lambda package: package.name)
def test_package_has_a_face_and_a_line_in_architecture_md(package: Package) -> None:
    folder = package.name.replace(".", "/") + "/"

    assert package.doc.count("\n") >= 2, "Explain the package's purpose in its docstring."
    assert f"`{folder}`" in (text_of(ROOT / "ARCHITECTURE.md") or "")


def test_public_modules_of_faces_are_those_that_import_linter_lets_through() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    admitted = {
        name.removesuffix(".*"): sorted(
            ignored.removeprefix("** -> ") for ignored in contract.get("ignore_imports", [])
        )
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "protected"
        for name in contract["protected_modules"]
        if name.endswith(".*")
    }

    for package in packages().values():
        if package.private and package.name not in WITHOUT_CONTRACT:
            assert admitted.get(package.name) == sorted(package.public), package.name


def test_code_outside_a_package_imports_from_its_face_or_its_public_modules() -> None:
    found = [
        f"{path}:{each.line}: {each.module} {each.name or ''}"
        for path in project_files()
        if path.suffix == ".py" and path.parts[0] in IMPORTERS
        for each in imports_of(path)
        if _bypasses_face(each, path) and (str(path), each.module) not in INNER_MODULES
    ]

    assert found == []


def _bypasses_face(each: Import, path: Path) -> bool:
    package = packages().get(each.module.rpartition(".")[0])
    if package is None or each.module in packages():
        return False
    if f"{each.importer}.".startswith(f"{package.name}."):
        return False
    if each.name is not None and package.exported.get(each.name) == each.module:
        return True
    return each.module in package.private and not _may_look_inside(path, package)


def _may_look_inside(path: Path, package: Package) -> bool:
    """Return whether a file measures or tests the inner parts of a package."""
    top, *inner = package.name.split(".")
    mirrored = ("tests", inner[0] if top == "tracer" else top)
    return path.parts[0] == "benchmarks" or path.parts[:2] == mirrored
