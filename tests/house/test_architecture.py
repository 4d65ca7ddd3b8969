"""Pages for contributors name only files, folders, functions, classes and decisions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.house.project_files import ROOT, project_files, text_of

LONGEST = 250

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = [
    ARCHITECTURE,
    *sorted((ROOT / "docs" / "contributing").glob("*.md")),
    *(
        ROOT / "docs" / "explanation" / name
        for name in ("background-jobs.md", "projection.md", "reading.md")
    ),
]
PLACEHOLDER = re.compile("NAME|KIND|NOUN")

_PATH = r"[\w.-]+/|(?:[\w.-]+/)+[\w.-]+/?|[\w-]+\.(?:py|ts|vue|js)"


def _quoted(page: Path, pattern: str) -> list[str]:
    """Return the code spans of a page that match a pattern."""
    spans = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    return sorted({each for each in spans if re.fullmatch(pattern, each)})


def test_architecture_md_stays_within_its_limit_of_lines() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_definitions_named_with_a_file_in_architecture_md_exist() -> None:
    # Such as `tracer/store.py: TraceWriter.write`.
    named = [each.split(": ") for each in _quoted(ARCHITECTURE, r"[\w./-]+\.\w+: [\w.]+")]

    assert len(named) > 50
    assert [f"{path}: {name}" for path, name in named if name not in _definitions(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_named_in_documents_exist(page: Path) -> None:
    # A path in a table may be relative to the one before it.
    ends = [each.removesuffix("/") for each in _quoted(page, _PATH) if not PLACEHOLDER.search(each)]
    there = {path for file in project_files() for path in (file, *file.parents)}
    known = {"/".join(path.parts[start:]) for path in there for start in range(len(path.parts))}

    assert ends
    assert [each for each in ends if each not in known] == []


def test_classes_and_methods_named_in_architecture_md_exist() -> None:
    # Such as `ActiveRun.record`, or `_store_state` at the beginning of a line of a sketch.
    text = ARCHITECTURE.read_text(encoding="utf-8")
    named = {
        *_quoted(ARCHITECTURE, r"_?[A-Z]\w*[a-z]\w*(?:\.\w+)?"),
        *re.findall(r"^ +(_\w+) ", text, re.MULTILINE),
    }
    sources = [str(each) for each in project_files() if each.suffix == ".py"]
    known = {name for each in sources for name in _definitions(each)}
    known |= {name.rpartition(".")[2] for name in known}

    assert named
    assert sorted(named - known) == []


def test_decisions_named_in_architecture_md_exist() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    groups = re.findall(r"\(decisions? ([\d, and]+)\)", text)
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
