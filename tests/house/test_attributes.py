"""The page of attributes is current, and lists every attribute that a dialect reads."""

from __future__ import annotations

import ast
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from scripts.attributes import PAGE, page
from tests.house.project_files import ROOT
from tracer.otel.dialects import DIALECTS, genai

FOLDER = ROOT / "tracer" / "otel" / "dialects"
READERS = ("first", "first_text", "_content")
"""Functions that take attributes and their names."""
PREFIXES = ("flattened", "flattened_values")
"""Functions that take attributes and the beginning of their names."""


def dialect_modules() -> list[ModuleType]:
    names = sorted(each.stem for each in FOLDER.glob("*.py") if each.stem != "__init__")
    modules = [import_module(f"tracer.otel.dialects.{name}") for name in names]
    declared = ("DIALECT", "read", "complete")
    return [module for module in modules if any(hasattr(module, name) for name in declared)]


def test_attributes_page_matches_the_declarations_of_the_dialects() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "Run `make attributes`."


def test_each_module_that_reads_spans_declares_a_dialect() -> None:
    assert [m.__name__ for m in dialect_modules() if not hasattr(m, "DIALECT")] == []


def test_dialects_have_distinct_order_numbers() -> None:
    orders = [dialect.order for dialect in DIALECTS]
    assert sorted(set(orders)) == orders


@pytest.mark.parametrize("module", dialect_modules(), ids=lambda module: module.__name__)
def test_dialect_reads_only_attributes_that_it_lists(module: ModuleType) -> None:
    listed = {
        name
        for dialect in (module.DIALECT, genai.DIALECT)
        for names in dialect.reads.values()
        for name in names
    }

    assert sorted(read_names(module) - listed) == []


def read_names(module: ModuleType) -> set[str]:
    """Return the names of attributes in the code of a module, as far as they are constants."""
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found: set[str] = set()
    for node in ast.walk(tree):
        names: ast.expr | None = None
        end = ""
        if isinstance(node, ast.Call) and len(node.args) > 1 and _is_attributes(node.args[0]):
            function = ast.unparse(node.func)
            if function in READERS + PREFIXES:
                names, end = node.args[1], ".*" if function in PREFIXES else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr == "get" and _is_attributes(node.func.value):
                names = node.args[0]
        elif isinstance(node, ast.Subscript) and _is_attributes(node.value):
            names = node.slice
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            names = node.left if _is_attributes(node.comparators[0]) else None
        if names is not None:
            found |= {name + end for name in _values(names, module)}
    return found


def _is_attributes(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2] == "attributes"


def _values(node: ast.expr, module: ModuleType) -> set[str]:
    """Return the names that an expression may have; none if it depends on a local variable."""
    if isinstance(node, ast.IfExp):
        return _values(node.body, module) | _values(node.orelse, module)
    try:
        value: Any = eval(compile(ast.Expression(node), "", "eval"), vars(module))
    except NameError:
        return set()
    return {value} if isinstance(value, str) else set(value)
