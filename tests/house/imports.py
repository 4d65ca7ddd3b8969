"""The imports of the project's Python files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.house.project_files import ROOT, project_files

SOURCES = ("tracer", "api")


class Import(NamedTuple):
    """A name that a file imports from a module of `SOURCES`, or such a module itself."""

    importer: str
    module: str
    name: str | None
    line: int


class Package(NamedTuple):
    """A package, its submodules, and what it shows to code outside."""

    name: str
    doc: str
    exported: dict[str, str]
    """The module of each name that the face imports from a module of the package."""
    public: frozenset[str]
    private: frozenset[str]


def module_of(path: Path) -> str:
    """Return the name of the module in a file."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    """Return the modules of `SOURCES`, with their files."""
    paths = [each for each in project_files() if each.suffix == ".py" and each.parts[0] in SOURCES]
    return {module_of(path): path for path in paths}


@cache
def packages() -> dict[str, Package]:
    """Return the packages of `SOURCES` without `tracer`, whose names are for users."""
    return {
        name: _package(name, path)
        for name, path in modules().items()
        if path.name == "__init__.py" and name != "tracer"
    }


def _package(name: str, path: Path) -> Package:
    doc = ast.get_docstring(_parsed(path)) or ""
    _, _, listed = doc.partition("Public modules")
    items = re.findall(r"^- (`.*?)(?:: |$)", listed, re.MULTILINE)
    public = frozenset(f"{name}.{each}" for item in items for each in re.findall(r"`(\w+)`", item))
    inner = {
        each
        for each, file in modules().items()
        if each.rpartition(".")[0] == name and file.name != "__init__.py"
    }
    shown = _shown(_parsed(path))
    exported = {
        each.name: each.module
        for each in imports_of(path)
        if each.name and each.name in shown and each.module.startswith(f"{name}.")
    }
    return Package(name, doc, exported, public, frozenset(inner - public))


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return what a file imports from `SOURCES`, also in functions and for type checkers."""
    return tuple(_imports(module_of(path), _parsed(path)))


def _imports(importer: str, tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name in modules():
                    yield Import(importer, each.name, None, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for each in node.names:
                if (inner := f"{node.module}.{each.name}") in modules():
                    yield Import(importer, inner, None, node.lineno)
                else:
                    yield Import(importer, node.module, each.name, node.lineno)


def _shown(face: ast.Module) -> set[str]:
    """Return the names in `__all__`."""
    values = [
        ast.literal_eval(each.value)
        for each in face.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"
    ]
    return {name for value in values for name in value}


def _parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))
