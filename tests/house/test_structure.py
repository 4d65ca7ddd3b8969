"""Limits for the number of modules, the length of import chains, and the path of one call.

The project's goals are 200 modules, a chain of 15, 20 modules with a single importer, and 42 and 48
files for a tool call and a span. The limits leave a margin of 5 %.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from benchmarks.span_path import calls_of_span, calls_of_tool_call
from tests.house.imports import imports_of, modules

MAX_MODULES = 236
MAX_CHAIN = 15
MAX_SINGLE_IMPORTERS = 27
MAX_FILES_OF_TOOL_CALL = 44
MAX_FILES_OF_SPAN = 50

SEAMS = (".routes.", ".commands.", ".cli.", ".dialects.", ".adapters.")
"""Modules here have one importer by nature."""

Graph = Mapping[str, set[str]]


def test_number_of_modules_stays_within_its_limit() -> None:
    assert len(modules()) <= MAX_MODULES


def test_longest_import_chain_stays_within_its_limit() -> None:
    chain = max(_chains(_graph()), key=len)

    assert len(chain) <= MAX_CHAIN, " → ".join(chain)


def test_few_modules_have_a_single_importer() -> None:
    importers = Counter(imported for each in _graph().values() for imported in each)
    single = [
        module
        for module, count in importers.items()
        if count == 1 and not any(seam in f"{module}." for seam in SEAMS)
    ]

    assert len(single) <= MAX_SINGLE_IMPORTERS, sorted(single)


def test_folders_do_not_import_each_other_in_circles() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for module, imported in _graph().items():
        graph[_folder(module)] |= {_folder(each) for each in imported} - {_folder(module)}

    assert [each for each in _groups(graph) if len(each) > 1] == []


@pytest.mark.thorough
def test_a_tool_call_and_a_span_pass_few_files(database_url: str, tmp_path: Path) -> None:
    tool_call = asyncio.run(calls_of_tool_call(database_url, tmp_path))
    span = asyncio.run(calls_of_span(1, database_url, tmp_path))
    files = sorted({file for file, _ in tool_call})
    assert len(files) <= MAX_FILES_OF_TOOL_CALL, files

    files = sorted({file for file, _ in span})
    assert len(files) <= MAX_FILES_OF_SPAN, files


def _graph() -> Graph:
    """Return the modules that each module imports. A name counts for the module that defines it."""
    return {
        module: {
            home
            for each in imports_of(path)
            if (home := _home(each.module, each.name)) != module
            if not (path.name == "__init__.py" and home.startswith(f"{module}."))
        }
        for module, path in modules().items()
    }


@cache
def _home(module: str, name: str | None) -> str:
    """Return the module that defines a name, which `module` may only pass on."""
    if name is not None and modules()[module].name == "__init__.py":
        for each in imports_of(modules()[module]):
            if each.name == name and each.module != module:
                return _home(each.module, name)
    return module


def _folder(module: str) -> str:
    """Return the folder of a module; at the top of `tracer` and `api`, the module itself."""
    path = modules()[module]
    is_top = len(path.parts) == 2 and path.name != "__init__.py"
    return module if is_top else ".".join(path.parent.parts)


def _chains(graph: Graph) -> Iterator[list[str]]:
    """Yield the longest chain of imports from each module. A circle of modules counts as one."""
    longest: dict[frozenset[str], list[str]] = {}
    group_of = {module: group for group in _groups(graph) for module in group}
    for group in _groups(graph):  # each after those that it imports
        below = {group_of[each] for module in group for each in graph[module]} - {group}
        longest[group] = [min(group), *max((longest[each] for each in below), key=len, default=[])]
        yield longest[group]


def _groups(graph: Graph) -> list[frozenset[str]]:
    """Return the circles of a graph, and its other nodes alone, each after those it leads to."""
    groups: list[frozenset[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        path.append(node)
        for each in graph.get(node, ()):
            if each not in number:
                visit(each)
                lowest[node] = min(lowest[node], lowest[each])
            elif each in path:
                lowest[node] = min(lowest[node], number[each])
        if lowest[node] == number[node]:
            start = path.index(node)
            groups.append(frozenset(path[start:]))
            del path[start:]

    for node in graph:
        if node not in number:
            visit(node)
    return groups
