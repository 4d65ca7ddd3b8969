"""Files of tools in the names of before are understood, and told what to write instead."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.tools import tool_file_reading
from tests.tools.tool_file_reading import FILE, problems_of, read
from tracer.tools.definition import ToolType
from tracer.tools.registry import ToolRegistry


def _deprecated(folder: Path, text: str) -> tuple[ToolRegistry, list[str]]:
    with pytest.warns(DeprecationWarning, match=FILE) as caught:
        registry = read(folder, text)
    [warning] = caught
    assert warning.filename == tool_file_reading.__file__  # who called the reader
    return registry, str(warning.message).split("\n- ")[1:]


def test_the_old_types_and_places_are_understood_and_deprecated_at_once(tmp_path: Path) -> None:
    registry, said = _deprecated(
        tmp_path,
        """
        [[tools]]
        id = "tool-1"
        name = "add"
        type = "BUILTIN"
        metadata = { tags = ["maths"] }

        [[tools]]
        name = "database"
        type = "NATIVE"
        description = "Counts."
        metadata = { executor = "Counter" }

        [[tools]]
        name = "weather"
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object", properties = {} }
        metadata = { customFields = { baseUrl = "https://api.weather.example" } }

        [[tools]]
        name = "read_row"
        type = "MCP"
        description = "Read a row."
        parameters = { type = "object", properties = {} }
        config = { serverName = "store", serverUrl = "https://store.example/mcp" }
        """,
    )

    kinds = {each.name: each.tool_type for each in registry}
    assert kinds == {
        "add": ToolType.STATELESS,
        "database": ToolType.STATEFUL,
        "weather": ToolType.REST,
    }
    assert registry.read("add").tags == {"maths"}
    [server] = registry.servers
    assert (server.name, server.config.url) == ("store", "https://store.example/mcp")
    assert server.config.tools == frozenset({"read_row"})
    assert said == [
        'tools.add.type: BUILTIN is STATELESS now: write type = "STATELESS".',
        "tools.add.id: a tool is known by its name: leave it out.",
        "tools.add.metadata.tags: is 'tags' now: write it there, beside the tool's name.",
        'tools.database.type: NATIVE is STATEFUL now: write type = "STATEFUL".',
        "tools.database.metadata.executor: is 'create' now: write it there, beside the tool's "
        "name.",
        "tools.weather.metadata.customFields: is 'config' now: write it there, beside the tool's "
        "name.",
        "tools.weather.config.baseUrl: is 'base_url' now: write that.",
        "tools.read_row.description: the server says it: leave it out.",
        "tools.read_row.parameters: the server says it: leave it out.",
        "tools.read_row.config.serverName: is 'name' now: write that.",
        "tools.read_row.config.serverUrl: is 'url' now: write that.",
    ]


def test_present_names_warn_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        read(tmp_path, '[tools.add]\ntype = "STATELESS"\n')

    assert caught == []


def test_old_timeouts_and_what_stands_twice_are_refused(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """
        [tools.weather]
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object" }
        config = { baseUrl = "https://a.example", base_url = "https://b.example", timeout = 9000 }
        [tools.database]
        type = "NATIVE"
        create = "Counter"
        metadata = { executor = "Counter", category = "storage" }
        """,
    )

    assert problems == [
        "tools.weather.config.baseUrl: stands there as 'base_url' too: keep that.",
        "tools.weather.config.timeout: may mean seconds or milliseconds: write it beside the "
        "tool's name, in seconds, and the other keys in their present names.",
        "tools.database.metadata.executor: stands there as 'create' too: keep that.",
        "tools.database.metadata.category: has no place any more: leave it out, or make a tag of "
        "it.",
    ]


def test_the_builtin_tools_code_has_to_be_handed_over(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, '[tools.calculator]\ntype = "BUILTIN"\n')

    assert problem == (
        "tools.calculator.function: is missing: name it, as module:name, or hand it over, as "
        "read_tools(…, functions={'calculator': …})."
    )
