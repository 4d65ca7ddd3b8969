"""ARCHITECTURE.md names only files, folders, functions, classes and decisions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.house.project_files import ROOT, project_files, text_of

LONGEST = 250

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))


def _quoted(pattern: str) -> list[str]:
    return [each for each in QUOTED if re.fullmatch(pattern, each)]


def test_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= LONGEST


def test_definitions_exist_in_their_files() -> None:
    # Such as `tracer/store.py: TraceWriter.write`.
    named = [each.split(": ") for each in _quoted(r"[\w./-]+\.\w+: [\w.]+")]

    assert len(named) > 50
    assert [f"{path}: {name}" for path, name in named if name not in _definitions(path)] == []


def test_paths_exist() -> None:
    # A path in the tables may be relative to the one before it.
    ends = [
        each.removesuffix("/")
        for each in _quoted(r"[\w.-]+/|(?:[\w.-]+/)+[\w.-]+/?|[\w-]+\.(?:py|ts|vue|js)")
    ]
    there = [path for file in project_files() for path in (file, *file.parents)]
    known = {
        "/".join(path.parts[start:]) for path in set(there) for start in range(len(path.parts))
    }

    assert len(ends) > 50
    assert [each for each in ends if each not in known] == []


def test_classes_and_methods_exist() -> None:
    # Such as `RunScope.record`, or `_keep_state` at the beginning of a line of a sketch.
    named = {
        *_quoted(r"_?[A-Z]\w*[a-z]\w*(?:\.\w+)?"),
        *re.findall(r"^ +(_\w+) ", PAGE, re.MULTILINE),
    }
    sources = [str(each) for each in project_files() if each.suffix == ".py"]
    known = {name for each in sources for name in _definitions(each)}
    known |= {name.rpartition(".")[2] for name in known}

    assert named
    assert sorted(named - known) == []


def test_decisions_exist() -> None:
    groups = re.findall(r"\(decisions? ([\d, and]+)\)", PAGE)
    numbers = {int(number) for group in groups for number in re.findall(r"\d+", group)}
    decisions = {int(each.name[:4]) for each in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}

    assert numbers
    assert sorted(numbers - decisions) == []


@cache
def _definitions(path: str) -> frozenset[str]:
    """Return the functions, classes and constants of a file, and the members of its classes."""
    text = text_of(ROOT / path) or ""
    if not path.endswith(".py"):
        return frozenset(
            re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", text, re.M)
        )
    found: set[str] = set()
    for node in ast.parse(text).body:
        for name in _names(node):
            found.add(name)
            if isinstance(node, ast.ClassDef):
                found.update(f"{name}.{inner}" for each in node.body for inner in _names(each))
    return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [each.id for each in targets if isinstance(each, ast.Name)]
