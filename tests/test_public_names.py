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
from tests.house.project_files import project_files, text_of

PRIVATE_IMPORT = re.compile(r"^ *(?:from|import) tracer\.(?!adapters\b).*", re.MULTILINE)

NAMES = {
    # Tools, and calling them
    "BasicAuth",
    "BearerAuth",
    "CallOutcome",
    "HeaderAuth",
    "McpConfig",
    "McpServer",
    "RestConfig",
    "Status",
    "Tool",
    "ToolRegistry",
    "ToolResources",
    "ToolService",
    "batch_tool",
    "read_tools",
    "rest_tool",
    "stateful_tool",
    "stateless_tool",
    "tool",
    # Hidden parameters, identity and session state
    "Hidden",
    "RunContext",
    "SessionState",
    "TokenId",
    "ToolContext",
    "User",
    "UserId",
    "identity",
    # Agents, plans and models
    "Agent",
    "Application",
    "BudgetLimits",
    "ChatModel",
    "ChosenCall",
    "Generation",
    "Message",
    "OpenAIModel",
    "PlanTemplate",
    "RunLauncher",
    "RunOutcome",
    "Script",
    "ScriptedModel",
    "StepTemplate",
    "Surroundings",
    "ToolSpec",
    "Turn",
    "call",
    "read_agents",
    "subplan_tool",
    # Recording
    "Chosen",
    "HttpWriter",
    "MemoryStore",
    "Recorder",
    "Spool",
    "Tracing",
    "connect",
    # Errors that users raise or catch
    "BadRequest",
    "ConfigurationError",
    "Denied",
    "IdentityUnavailable",
    "InvalidArguments",
    "InvalidResult",
    "MissingIdentity",
    "ModelError",
    "RegistrationError",
    "StateConflict",
    "StoreUnavailable",
    "ToolError",
    "ToolUnavailable",
    "Toolkit",
    "TracerError",
    "UnknownTool",
}

HEAVY = ("fastapi", "httpx", "httpx2", "langchain_core", "mcp", "openai", "psycopg", "sqlmodel")


def _imports_for_type_checkers() -> dict[str, str]:
    """Return the modules of the names that mypy and editors read in `tracer/__init__.py`."""
    source = Path(inspect.getfile(tracer)).read_text(encoding="utf-8")
    [block] = [
        each
        for each in ast.parse(source).body
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname or alias.name: each.module or ""
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }


def test_public_names_match_the_documented_list() -> None:
    assert set(tracer.__all__) == NAMES
    assert len(tracer.__all__) == len(NAMES)
    assert set(dir(tracer)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_public_name_is_importable_and_documented(name: str) -> None:
    value = getattr(tracer, name)

    doc = inspect.getdoc(value)
    assert doc
    assert doc != inspect.getdoc(NewType)


def test_type_checker_and_runtime_resolve_public_names_to_the_same_objects() -> None:
    modules = _imports_for_type_checkers()

    assert set(modules) == NAMES
    for name, module in modules.items():
        assert getattr(importlib.import_module(module), name) is getattr(tracer, name), name


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tracer.no_such_name  # type: ignore[attr-defined]


def test_import_loads_no_large_library() -> None:
    program = f"import sys, tracer; print(*[each for each in {HEAVY!r} if each in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert run.stdout.split() == []


def test_dir_loads_no_large_library() -> None:
    program = (
        "import sys, tracer; dir(tracer);"
        f"print(*[each for each in {HEAVY!r} if each in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert run.stdout.split() == []


@pytest.mark.parametrize("adapter", ["agno", "langchain", "openai_agents", "pydantic_ai"])
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
    shown = [
        each
        for each in project_files()
        if each.name == "README.md" or each.parts[0] in ("docs", "examples")
        if each.parts[:2] != ("docs", "contributing")
    ]

    assert Path("docs/guides/tools.md") in shown
    assert [
        (str(path), line) for path in shown for line in PRIVATE_IMPORT.findall(text_of(path) or "")
    ] == []
