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
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from tracer.errors import RegistrationError
from tracer.logs import get_logger
from tracer.tools.config.entries import McpEntry, Servers, ToolFile, by_name
from tracer.tools.config.problems import FileProblems, parsed
from tracer.tools.executors.mcp.config import McpConfig
from tracer.tools.executors.mcp.server import McpServer
from tracer.tools.registry import ToolRegistry

log = get_logger(__name__)

_FILE = TypeAdapter(ToolFile)
_SERVERS = TypeAdapter(Servers)


def read_tools(
    path: Path,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    strict: bool = False,
) -> ToolRegistry:
    """Read tools and MCP servers from a TOML file. Names of earlier versions are accepted.

    Args:
        path: The file. Paths of schemas in it are relative to it.
        functions: Objects by name, to which `function`, `create` and `tool_hooks` in the file may
            refer. They may also refer to `module:name`. A tool without `function` and `create` uses
            the object that has the tool's name.
        strict: Whether one faulty tool or server makes the function raise. Otherwise it is logged,
            listed in the registry's `refused`, and left out.

    Returns:
        A registry with the tools and servers; more can be registered.

    Raises:
        RegistrationError: The file cannot be read or, apart from its tools and servers, has errors.
            The message lists them.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise RegistrationError(f"{path.name} is not valid TOML: {error}.") from error
    named = {"functions": functions or {}, "folder": path.parent}
    registry = ToolRegistry()
    refused: dict[str, str] = {}
    try:
        file = parsed(path.name, _FILE, content, **named)
    except FileProblems as error:
        if strict:
            raise
        refused = error.by_entry("tools")
        tools = cast("dict[str, Any]", by_name(content["tools"]))
        content["tools"] = {name: each for name, each in tools.items() if name not in refused}
        file = parsed(path.name, _FILE, content, **named)
    for name, entry in file.tools.items():
        try:
            if not isinstance(entry, McpEntry):
                registry.register(entry.tool())
        except RegistrationError as error:
            refused[name] = f"tools.{name}: {error}"
    for config in _servers(path.name, file, refused):
        registry.add_server(McpServer(config))
    if strict and refused:
        raise FileProblems(path.name, dict.fromkeys(refused.values(), ()))
    for name, reason in refused.items():
        log.error("tool_refused", file=path.name, tool=name, reason=reason)
    registry.refused |= refused
    return registry


def _servers(file_name: str, file: ToolFile, refused: dict[str, str]) -> Iterable[McpConfig]:
    """Return the valid servers of a file; add the tools of the others to `refused`."""
    tables = file.server_tables(refused)
    try:
        return parsed(file_name, _SERVERS, {"servers": tables}).servers.values()
    except FileProblems as error:
        for server, reason in error.by_entry("servers").items():
            del tables[server]
            refused |= dict.fromkeys(file.tools_of(server) or [f"servers.{server}"], reason)
    return parsed(file_name, _SERVERS, {"servers": tables}).servers.values()
