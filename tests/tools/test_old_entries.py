"""Tool files with the names of earlier versions are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.tool_file_reading import problems_of, read
from tracer.tools import ToolType
from tracer.tools.mcp import McpServer


def test_old_types_and_fields_are_accepted(tmp_path: Path) -> None:
    registry = read(
        tmp_path,
        """
        [[tools]]
        id = "tool-1"
        name = "add"
        type = "BUILTIN"
        metadata = { tags = ["maths"], category = "sums", author = { name = "Ann" } }

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
    assert isinstance(server, McpServer)
    assert (server.name, server.config.url) == ("store", "https://store.example/mcp")
    assert server.config.tools == frozenset({"read_row"})


def test_timeout_of_an_old_entry_is_in_milliseconds_and_of_a_present_one_in_seconds(
    tmp_path: Path,
) -> None:
    registry = read(
        tmp_path,
        """
        [tools.weather]
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object" }
        config = { baseUrl = "https://a.example", timeout = 9000 }
        [tools.fields]
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object" }
        metadata = { customFields = { base_url = "https://a.example", timeout = 1500 } }
        [tools.present]
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object" }
        config = { base_url = "https://a.example", timeout = 9 }
        [tools.beside]
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object" }
        timeout = 3
        config = { base_url = "https://a.example", timeout = 9 }
        [tools.without]
        type = "REST"
        description = "Read the weather."
        parameters = { type = "object" }
        config = { base_url = "https://a.example" }
        [tools.read_row]
        type = "MCP"
        config = { serverUrl = "https://store.example/mcp", timeout = 2500 }
        [tools.read_column]
        type = "MCP"
        config = { url = "https://other.example/mcp", timeout = 2.5 }
        """,
    )

    assert {each.name: each.timeout for each in registry} == {
        **{"weather": 9, "fields": 1.5, "present": 9, "beside": 3, "without": 30}
    }
    servers = [each for each in registry.servers if isinstance(each, McpServer)]
    assert [each.config.timeout for each in servers] == [2.5, 2.5]


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
    registry = read(
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
    assert isinstance(found, McpServer)
    assert (found.config.url, found.config.timeout) == ("https://store.example/mcp", 5)
    assert found.config.tools == frozenset({"read_row", "write_row"})


def test_mcp_entry_without_an_address_anywhere_is_rejected(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """
        [tools.read_row]
        type = "MCP"
        config = { serverName = "store" }
        [tools.clock]
        type = "MCP"
        config = {}
        """,
    )

    assert problems == [
        f"servers.{name}: an MCP server must have either a command or a url."
        for name in ("store", "clock")
    ]


def test_builtin_entry_without_its_function_is_rejected(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, '[tools.calculator]\ntype = "BUILTIN"\n')

    assert problem.startswith("tools.calculator.STATELESS.function: unknown name 'calculator'. ")
