"""Read tools and MCP servers from a file, `tools.toml`.

    [tools.add]
    type = "STATELESS"
    function = "clinic.sums:add"

    [tools.read_weather]
    type = "REST"
    description = "Read the weather of a city."
    parameters = "read_weather.json"
    config = { base_url = "https://weather.example", path = "/v1/{city}" }

    [servers.clock]
    command = "mcp-server-time"

Tools may also be a list: `[[tools]]`, each with its `name`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tracer.errors import RegistrationError
from tracer.tools.config.entries import McpEntry, Servers, ToolFile
from tracer.tools.config.problems import parsed
from tracer.tools.executors.mcp.server import McpServer
from tracer.tools.registry import ToolRegistry

_FILE = TypeAdapter(ToolFile)
_SERVERS = TypeAdapter(Servers)


def read_tools(
    path: Path, *, functions: Mapping[str, Callable[..., Any]] | None = None
) -> ToolRegistry:
    """Read tools and MCP servers from a TOML file. Names of earlier versions are accepted.

    Args:
        path: The file. Paths of schemas in it are relative to it.
        functions: Objects by name, to which `function`, `create` and `tool_hooks` in the file may
            refer. They may also refer to `module:name`. A tool without `function` and `create` uses
            the object that has the tool's name.

    Returns:
        A registry with the tools and servers; more can be registered.

    Raises:
        RegistrationError: The file cannot be read or has errors. The message lists them.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise RegistrationError(f"{path.name} is not valid TOML: {error}.") from error
    file = parsed(path.name, _FILE, content, functions=functions or {}, folder=path.parent)
    registry = ToolRegistry()
    problems: list[str] = []
    for name, entry in file.tools.items():
        try:
            if not isinstance(entry, McpEntry):
                registry.register(entry.tool())
        except RegistrationError as error:
            problems.append(f"tools.{name}: {error}")
    try:
        servers = parsed(path.name, _SERVERS, {"servers": file.server_tables()}).servers
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise RegistrationError("\n- ".join([f"{path.name} has errors. Correct them:", *problems]))
    for config in servers.values():
        registry.add_server(McpServer(config))
    return registry
