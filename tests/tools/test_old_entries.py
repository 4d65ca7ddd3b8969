"""Tool files with deprecated names are read, and a warning gives the new name."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.tools import tool_file_reading
from tests.tools.tool_file_reading import FILE, problems_of, read
from tracer.tools.definition.tool import ToolType
from tracer.tools.registry import ToolRegistry


def _deprecated(folder: Path, text: str) -> tuple[ToolRegistry, list[str]]:
    with pytest.warns(DeprecationWarning, match=FILE) as caught:
        registry = read(folder, text)
    [warning] = caught
    assert warning.filename == tool_file_reading.__file__  # who called the reader
    return registry, str(warning.message).split("\n- ")[1:]


def test_old_types_and_fields_are_accepted_with_one_deprecation_warning(tmp_path: Path) -> None:
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
        'tools.add.type: BUILTIN is deprecated: write type = "STATELESS".',
        "tools.add.id: is not used, because a tool is identified by its name.",
        "tools.add.metadata.tags: is deprecated: write 'tags' in the tool's table.",
        'tools.database.type: NATIVE is deprecated: write type = "STATEFUL".',
        "tools.database.metadata.executor: is deprecated: write 'create' in the tool's table.",
        "tools.weather.metadata.customFields: is deprecated: write 'config' in the tool's table.",
        "tools.weather.config.baseUrl: is deprecated: write 'base_url'.",
        "tools.read_row.description: is not used, because the server supplies it.",
        "tools.read_row.parameters: is not used, because the server supplies it.",
        "tools.read_row.config.serverName: is deprecated: write 'name'.",
        "tools.read_row.config.serverUrl: is deprecated: write 'url'.",
    ]


def test_current_names_give_no_deprecation_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        read(tmp_path, '[tools.add]\ntype = "STATELESS"\n')

    assert caught == []


def test_old_timeouts_and_duplicate_settings_are_rejected(tmp_path: Path) -> None:
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
        metadata = { executor = "Counter" }
        """,
    )

    assert problems == [
        "tools.weather.config.baseUrl: repeats 'base_url': remove it.",
        "tools.weather.config.timeout: may mean seconds or milliseconds: write it in the "
        "tool's table, in seconds, and the other keys with their present names.",
        "tools.database.metadata.executor: repeats 'create' of the tool: remove it.",
    ]


def test_unknown_metadata_is_ignored_and_deprecated(tmp_path: Path) -> None:
    registry, lines = _deprecated(
        tmp_path,
        """
        [tools.add]
        type = "STATELESS"
        metadata = { category = "maths", version = 2, author = { name = "Ann" } }
        """,
    )

    assert [each.name for each in registry] == ["add"]
    assert lines == [
        f"tools.add.metadata.{name}: is ignored: remove it, or write a tag instead."
        for name in ("category", "version", "author")
    ]


@pytest.mark.parametrize(
    "server",
    [
        '[servers.store]\nurl = "https://store.example/mcp"\ntimeout = 5\ntools = []\n',
        '[tools.last]\ntype = "MCP"\n'
        'config = { name = "store", url = "https://store.example/mcp", timeout = 5, tools = [] }\n',
    ],
)
def test_mcp_entry_without_an_address_uses_the_server_that_it_names(
    tmp_path: Path, server: str
) -> None:
    registry, _ = _deprecated(
        tmp_path,
        """
        [tools.read_row]
        type = "MCP"
        metadata = { customFields = { serverName = "store" } }
        [tools.write_row]
        type = "MCP"
        config = { serverName = "store" }
        """
        + server,
    )

    [found] = registry.servers
    assert (found.config.url, found.config.timeout) == ("https://store.example/mcp", 5)
    assert found.config.tools == frozenset({"read_row", "write_row"})


def test_mcp_entry_with_a_missing_or_conflicting_server_is_rejected(
    tmp_path: Path,
) -> None:
    problems = problems_of(
        tmp_path,
        """
        [tools.read_row]
        type = "MCP"
        config = { serverName = "store" }
        [tools.clock]
        type = "MCP"
        config = {}
        [servers.other]
        url = "https://other.example/mcp"
        [tools.differing]
        type = "MCP"
        config = { name = "other", prefix = "x" }
        [servers.wrong]
        url = "no address"
        [tools.of_wrong]
        type = "MCP"
        config = { serverName = "wrong" }
        """,
    )

    assert problems[0].startswith("servers.wrong: ")
    assert problems[1:] == [
        "tools.read_row.config: the file has no address of the server 'store': add url = "
        '"https://…/mcp" here, or a table [servers.store] with a url or a command.',
        "tools.clock.config: the file has no address of the server 'clock': add url = "
        '"https://…/mcp" here, or a table [servers.clock] with a url or a command.',
        "tools.differing.config: contradicts another description of the server 'other'.",
    ]


def test_builtin_entry_without_its_function_is_rejected(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, '[tools.calculator]\ntype = "BUILTIN"\n')

    assert problem == (
        "tools.calculator.function: is missing: write it as module:name, or pass the function to "
        "read_tools(…, functions={'calculator': …})."
    )
