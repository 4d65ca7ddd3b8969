"""Tools are read from a file (`tools.toml`)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.contexts import Caller
from tests.tools.http_servers import http_server, reply
from tests.tools.tool_file_reading import FUNCTIONS, add, read
from tracer.context import identity
from tracer.recorder import Recorder, Spool
from tracer.records import Status
from tracer.storage.memory import recording_in_memory
from tracer.tools import ToolRegistry, ToolService, ToolType, tool
from tracer.tools.mcp import McpServer


@asynccontextmanager
async def _service(folder: Path, registry: ToolRegistry) -> AsyncIterator[ToolService]:
    async with (
        Recorder(recording_in_memory(), Spool(folder / "spool.sqlite3")) as recorder,
        ToolService(registry, recorder) as tools,
    ):
        yield tools


async def test_function_supplies_what_a_tool_file_omits(tmp_path: Path) -> None:
    registry = read(tmp_path, '[tools.add]\ntype = "STATELESS"\n')

    found = registry.read("add")
    assert (found.tool_type, found.description) == (ToolType.STATELESS, "Add two numbers.")
    assert found.parameters == tool(add).parameters
    assert (await Caller().call(found, '{"a": 2}')).result == "3"


def test_tool_has_every_setting_of_the_tool_file(tmp_path: Path) -> None:
    registry = read(
        tmp_path,
        """
        [tools.sum]
        type = "STATELESS"
        function = "add"
        description = "Sum up."
        tags = ["maths"]
        timeout = 3
        max_attempts = 2
        concurrency = "exclusive"
        max_parallel = 4
        tool_hooks = ["operator:itemgetter", "first"]

        [tools.sum.parameters]
        type = "object"
        required = ["a"]
        properties.a.type = "integer"
        """,
        functions={**FUNCTIONS, "operator:itemgetter": _first, "first": _first},
    )

    [found] = registry.tagged("maths")
    assert (found.name, found.description) == ("sum", "Sum up.")
    assert (found.timeout, found.max_attempts) == (3, 2)
    assert (found.concurrency, found.max_parallel) == ("exclusive", 4)
    assert [getattr(each, "name", None) for each in found.tool_hooks] == ["_first", "_first"]
    assert found.parameters["properties"] == {"a": {"type": "integer"}}


def _first(arguments: Any) -> Any:
    return arguments


def test_tool_file_as_a_list_equals_the_one_with_tables(tmp_path: Path) -> None:
    registry = read(tmp_path, '[[tools]]\nname = "add"\ntype = "STATELESS"\n')

    assert [each.name for each in registry] == ["add"]


def test_tool_file_can_reference_a_schema_file(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    (tmp_path / "add.json").write_text(json.dumps(schema))

    registry = read(tmp_path, '[tools.add]\ntype = "STATELESS"\nparameters = "add.json"\n')

    assert registry.read("add").parameters["properties"] == schema["properties"]


def test_tool_file_names_a_function_as_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clinic_sums.py").write_text("class Sums:\n    def double(a: int): return 2 * a\n")
    monkeypatch.syspath_prepend(tmp_path)

    registry = read(
        tmp_path, '[tools.d]\ntype = "STATELESS"\nfunction = "clinic_sums:Sums.double"\n'
    )

    assert list(registry.read("d").parameters["properties"]) == ["a"]


async def test_hidden_parameters_stay_hidden_with_a_schema_file(
    tmp_path: Path,
) -> None:
    registry = read(
        tmp_path,
        """
        [tools.greet]
        type = "STATELESS"
        parameters = { type = "object", properties = { greeting = { type = "string" } } }
        """,
    )

    async with _service(tmp_path, registry) as tools:
        with identity(token_id="user-123"):
            outcome = await tools.call("greet", {"greeting": "Hello", "user_id": "forged"})
        refused = await tools.call("greet", {"greeting": "Hello"})
    assert outcome.result == "Hello!"
    assert refused.reason == "missing_identity"


async def test_stateful_tool_of_a_tool_file_has_an_instance_per_conversation(
    tmp_path: Path,
) -> None:
    registry = read(tmp_path, '[tools.count]\ntype = "STATEFUL"\ncreate = "Counter"\n')

    async with _service(tmp_path, registry) as tools:
        results = [
            (await tools.call("count", {}, thread_id=thread)).result for thread in ("a", "a", "b")
        ]
    assert results == ["1", "2", "1"]


async def test_rest_tool_of_a_tool_file_sends_its_request(tmp_path: Path) -> None:
    async with http_server(lambda request: reply(json={"path": request.target})) as server:
        registry = read(
            tmp_path,
            f"""
            [tools.read_weather]
            type = "REST"
            description = "Read the weather."
            timeout = 5
            max_attempts = 2
            [tools.read_weather.parameters]
            type = "object"
            properties.city.type = "string"
            [tools.read_weather.config]
            base_url = "{server.url}"
            path = "/v1/{{city}}"
            query = {{ units = "metric" }}
            response = "/path"
            allowed_hosts = ["{server.host}"]
            """,
        )
        async with _service(tmp_path, registry) as tools:
            outcome = await tools.call("read_weather", {"city": "Zürich"})

    assert outcome.result == "/v1/Z%C3%BCrich?units=metric"


async def test_tools_of_a_server_in_the_file_are_registered(tmp_path: Path) -> None:
    registry = read(
        tmp_path,
        f"""
        [servers.clock]
        command = {json.dumps(sys.executable)}
        args = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
        tags = ["time"]
        """,
    )

    async with _service(tmp_path, registry) as tools:
        outcome = await tools.call("get_current_time", {"timezone": "UTC"})
        tagged = {each.name for each in registry.tagged("time")}
    assert outcome.status == Status.SUCCEEDED
    assert tagged == {"get_current_time", "convert_time"}


def test_entries_of_one_mcp_server_share_its_connection(tmp_path: Path) -> None:
    registry = read(
        tmp_path,
        """
        [tools.read_row]
        type = "MCP"
        config = { name = "store", url = "https://store.example/mcp" }
        [tools.write_row]
        type = "MCP"
        config = { name = "store", url = "https://store.example/mcp" }
        [tools.other]
        type = "MCP"
        config = { url = "https://other.example/mcp", tools = ["this", "that"] }
        """,
    )

    taken = {
        each.name: set(each.config.tools or ())
        for each in registry.servers
        if isinstance(each, McpServer)
    }
    assert taken == {"store": {"read_row", "write_row"}, "other": {"this", "that"}}


def test_server_with_its_own_section_offers_all_its_tools(tmp_path: Path) -> None:
    registry = read(
        tmp_path,
        """
        [tools.read_row]
        type = "MCP"
        config = { name = "store", url = "https://store.example/mcp" }
        [servers.store]
        url = "https://store.example/mcp"
        """,
    )

    [server] = registry.servers
    assert isinstance(server, McpServer)
    assert server.config.tools is None
