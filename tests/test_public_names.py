"""The names that `import tracer` offers."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import NewType

import pytest

import tracer
from tests.house.project_files import ADAPTERS, project_files, text_of

PRIVATE_IMPORT = re.compile(
    r"^ *(?:from|import) tracer\.(?!(?:adapters|testing)\b).*", re.MULTILINE
)

HEAVY = ("fastapi", "httpx", "httpx2", "langchain_core", "mcp", "openai", "psycopg", "sqlmodel")


DOCUMENTS = [
    each
    for each in project_files()
    if each.name == "README.md" or each.parts[0] in ("docs", "examples")
    if each.parts[:2] != ("docs", "contributing")
]


def test_type_checker_and_runtime_resolve_public_names_to_the_same_objects() -> None:
    stub = Path(inspect.getfile(tracer)).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [each for each in ast.parse(stub).body if isinstance(each, ast.ImportFrom)]
    modules = {alias.asname: each.module or "" for each in imports for alias in each.names}

    assert set(modules) == set(tracer.__all__) <= set(dir(tracer))
    for name, module in modules.items():
        assert name is not None
        assert getattr(importlib.import_module(module), name) is getattr(tracer, name), name


@pytest.mark.parametrize("name", tracer.__all__)
def test_public_name_has_a_docstring_and_a_document_uses_it(name: str) -> None:
    doc = inspect.getdoc(getattr(tracer, name))
    assert doc
    assert doc != inspect.getdoc(NewType)

    use = re.compile(rf"(import|tracer\.|`)[^`\n]*\b{name}\b|^    {name},$", re.MULTILINE)
    assert [each for each in DOCUMENTS if use.search(text_of(each) or "")] != []


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tracer.no_such_name  # type: ignore[attr-defined]


def test_dir_loads_no_large_library() -> None:
    program = (
        "import sys, tracer; dir(tracer);"
        f"print(*[each for each in {HEAVY!r} if each in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert run.stdout.split() == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_framework_adapter_loads_nothing_of_the_extra_otel(adapter: str) -> None:
    program = (
        f"import sys, tracer.adapters.{adapter};"
        "unwanted = 'tracer.otel.', 'google.';"
        "print(*[name for name in sys.modules if f'{name}.'.startswith(unwanted)])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert run.stdout.split() == []


def test_guides_and_examples_import_public_names_only() -> None:
    assert Path("docs/guides/tools.md") in DOCUMENTS
    assert [
        (str(path), line)
        for path in DOCUMENTS
        for line in PRIVATE_IMPORT.findall(text_of(path) or "")
    ] == []
