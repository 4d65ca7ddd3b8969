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

import json
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tracer.errors import RegistrationError
from tracer.tools.config.entries import (
    ENTRIES,
    McpEntry,
    RestEntry,
    StatelessEntry,
    ToolEntry,
    upgrade_entry,
)
from tracer.tools.config.problems import DefinitionProblems, unknown_name
from tracer.tools.definition.signature import description_of, hidden_by_type
from tracer.tools.definition.tool import Tool, ToolOptions, tool
from tracer.tools.executors.function.executor import stateless_tool
from tracer.tools.executors.mcp.config import McpConfig
from tracer.tools.executors.mcp.server import McpServer
from tracer.tools.executors.rest.executor import rest_tool
from tracer.tools.executors.secrets import is_literal_secret
from tracer.tools.executors.stateful.executor import stateful_tool
from tracer.tools.registry import ToolRegistry

Functions = Mapping[str, Callable[..., Any]]


def read_tools(path: Path, *, functions: Functions | None = None) -> ToolRegistry:
    """Read tools and MCP servers from a TOML file.

    Deprecated names are accepted, with a `DeprecationWarning` that states the present ones.

    Args:
        path: The file. Paths of schemas in it are relative to it.
        functions: Objects by name, to which `function`, `create` and `hooks` in the file may refer.
            They may also refer to `module:name`. A tool without `function` and `create` uses the
            object that has the tool's name.

    Returns:
        A registry with the tools and servers; more can be registered.

    Raises:
        RegistrationError: The file cannot be read or has errors. The message lists all of them.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise RegistrationError(f"{path.name} is not valid TOML: {error}.") from error
    reader = _ToolFileReader(path, functions or {})
    reader.read(content)
    reader.problems.raise_if_any()
    if reader.deprecated:
        text = "\n- ".join([f"{path.name} uses deprecated names:", *reader.deprecated])
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    for config in reader.servers.values():
        reader.registry.add_server(McpServer(config))
    return reader.registry


class _ToolFileReader:
    """Reads one file."""

    def __init__(self, path: Path, functions: Functions) -> None:
        self.registry = ToolRegistry()
        self.servers: dict[str, McpConfig] = {}
        self.problems = DefinitionProblems(path.name)
        self.deprecated: list[str] = []
        self._server_names: set[str] = set()
        """The names of the servers that the file describes, including invalid descriptions."""
        self._without_address: list[tuple[str, McpEntry]] = []
        """MCP tools whose server is configured elsewhere in the file, each with its location."""
        self._folder = path.parent
        self._functions = functions

    def read(self, content: dict[str, Any]) -> None:
        for key in sorted(content.keys() - {"tools", "servers"}):
            self.problems.add(key, unknown_name("key", key, ("tools", "servers")))
        servers = content.get("servers", {})
        if not isinstance(servers, dict):
            self.problems.add("servers", "write each server as a table, [servers.NAME].")
            servers = {}
        for name, config in servers.items():
            self._read_server(f"servers.{name}", name, config)
        for location, entry in self._entries(content.get("tools", {})):
            self._read_tool(location, entry)
        for location, tool_entry in self._without_address:
            self._add_to_server(location, tool_entry)

    def _entries(self, tools: object) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each tool's location and entry, which includes its name."""
        if isinstance(tools, dict):
            for name, entry in tools.items():
                if not isinstance(entry, dict):
                    self.problems.add(f"tools.{name}", "write each tool as a table, [tools.NAME].")
                elif entry.get("name", name) != name:
                    self.problems.add(
                        f"tools.{name}.name", "differs from the table's name: remove it."
                    )
                else:
                    yield f"tools.{name}", {**entry, "name": name}
        elif isinstance(tools, list) and all(isinstance(each, dict) for each in tools):
            for position, entry in enumerate(tools, start=1):
                yield f"tools.{entry.get('name', f'number {position}')}", entry
        else:
            self.problems.add("tools", "write each tool as a table, [tools.NAME].")

    def _read_tool(self, location: str, content: dict[str, Any]) -> None:
        entry = upgrade_entry(location, content, self._deprecate, self.problems.add)
        kind = str(entry.get("type", ""))
        if kind not in ENTRIES:
            advice = "Define tools of other types in code."
            problem = unknown_name("type", kind, ENTRIES, advice)
            self.problems.add(f"{location}.type", problem if kind else "is missing.")
            return
        if kind == "MCP" and isinstance(entry.get("config"), dict):
            entry["config"] = self._without_secrets(f"{location}.config", entry["config"])
        if isinstance(entry.get("parameters"), str):
            entry["parameters"] = self._schema(f"{location}.parameters", entry["parameters"])
        parsed = self.problems.read(location, ENTRIES[kind], entry)
        if isinstance(parsed, McpEntry) and not {"url", "command"} & parsed.config.keys():
            self._without_address.append((f"{location}.config", parsed))
        elif isinstance(parsed, McpEntry):
            self._read_server(f"{location}.config", parsed.name, parsed.config, {parsed.name})
        elif parsed is not None:
            try:
                new_tool = self._build_tool(location, parsed)
                if new_tool is not None:
                    self.registry.register(new_tool)
            except RegistrationError as error:
                self.problems.add(location, str(error))

    def _build_tool(self, location: str, entry: ToolEntry) -> Tool | None:
        options = self._options(location, entry)
        if isinstance(entry, RestEntry):
            return rest_tool(
                name=entry.name,
                description=entry.description,
                parameters=entry.parameters,
                config=entry.config,
                **options,
            )
        is_stateless = isinstance(entry, StatelessEntry)
        key = "function" if is_stateless else "create"
        function = self._function(f"{location}.{key}", entry.name, getattr(entry, key))
        if function is None:
            return None
        if not is_stateless:
            make = partial(stateful_tool, create=function, parameters=entry.parameters)
            return make(name=entry.name, description=entry.description, **options)
        if entry.parameters is None:
            return tool(name=entry.name, description=entry.description, **options)(function)
        options["hidden"] = {**hidden_by_type(function), **options.get("hidden", {})}
        return stateless_tool(
            name=entry.name,
            description=entry.description or description_of(function),
            parameters=entry.parameters,
            execute=function,
            **options,
        )

    def _options(self, location: str, entry: ToolEntry) -> ToolOptions:
        fields = entry.model_dump(include=set(ToolOptions.__annotations__), exclude_unset=True)
        hooks = [
            self.problems.resolve(f"{location}.hooks", each, self._functions)
            for each in entry.hooks
        ]
        options: ToolOptions = {**fields, "hooks": [each for each in hooks if each is not None]}  # type: ignore[typeddict-item]
        return options

    def _function(
        self, location: str, tool_name: str, name: str | None
    ) -> Callable[..., Any] | None:
        if name is None and tool_name not in self._functions:
            self.problems.add(
                location,
                f"is missing: write it as module:name, or pass the function to "
                f"read_tools(…, functions={{{tool_name!r}: …}}).",
            )
            return None
        target: object = self.problems.resolve(location, name or tool_name, self._functions)
        if isinstance(target, Tool):
            self.problems.add(
                location, "is a tool already: register it in code, or remove its @tool."
            )
        elif callable(target):
            return target
        elif target is not None:
            self.problems.add(location, "is not callable: name a function or a class.")
        return None

    def _schema(self, location: str, file: str) -> Any:
        """Return the content of a JSON Schema file.

        If the file is invalid, add a problem and return an empty schema.
        """
        try:
            return json.loads((self._folder / file).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            self.problems.add(location, f"{file!r} cannot be read as JSON: {error}.")
            return {"type": "object"}

    def _read_server(
        self, location: str, name: str, config: object, tools: set[str] | None = None
    ) -> None:
        """Add a server. If the file describes it several times, the tools are combined.

        Args:
            location: The configuration's location in the file.
            name: The server's name; ignored if the configuration contains a name.
            config: The configuration.
            tools: The server's tools to use, if the configuration does not list them.
        """
        if not isinstance(config, dict):
            self.problems.add(location, "must be a table, with a command or a url.")
            return
        if tools is None:
            config = self._without_secrets(location, config)
        content = {"name": name, "tools": tools, **config}
        self._server_names.add(str(content["name"]))
        server = self.problems.read(location, McpConfig, content)
        if server is None:
            return
        first = self.servers.setdefault(server.name, server)
        if first.model_copy(update={"tools": server.tools}) != server:
            self.problems.add(
                location, f"contradicts another description of the server {server.name!r}."
            )
        elif first.tools is not None:
            both = None if server.tools is None else first.tools | server.tools
            self.servers[server.name] = server.model_copy(update={"tools": both})

    def _add_to_server(self, location: str, entry: McpEntry) -> None:
        """Add a tool to an MCP server that is configured in another part of the file."""
        name = entry.config.get("name", entry.name)
        server = self.servers.get(name) if isinstance(name, str) else None
        if server is None:
            if str(name) in self._server_names:
                return  # the invalid description is reported already
            self.problems.add(
                location,
                f"the file has no address of the server {name!r}: add url = "
                f'"https://…/mcp" here, or a table [servers.{name}] with a url or a command.',
            )
            return
        content = server.model_dump(exclude={"tools"}, exclude_unset=True)
        self._read_server(location, name, {**content, **entry.config}, {entry.name})

    def _without_secrets(self, location: str, config: dict[str, Any]) -> dict[str, Any]:
        """Return an MCP server's configuration without literal secrets, and add a problem for each.

        Servers that are defined in code are not checked: code may read a header from elsewhere.
        """
        config = dict(config)
        for part, advice in _ADVICE.items():
            values = config.get(part)
            if not isinstance(values, dict):
                continue
            secrets = [name for name, each in values.items() if _is_secret(name, each)]
            for name in secrets:
                self.problems.add(f"{location}.{part}.{name}", advice.format(name=name))
            config[part] = {name: each for name, each in values.items() if name not in secrets}
        url = config.get("url")
        for name in _secrets_of_url(url) if isinstance(url, str) else ():
            self.problems.add(f"{location}.url", _IN_URL.format(name=name))
        return config

    def _deprecate(self, location: str, message: str) -> None:
        self.deprecated.append(f"{location}: {message}.")


_ELSEWHERE = "files must not contain secrets: set it as an environment variable, and write "

_ADVICE = {
    "headers": _ELSEWHERE + '{name} = "env:NAME", or bearer = "env:NAME" instead of the header.',
    "env": _ELSEWHERE + '{name} = "env:NAME".',
}
"""The advice for a literal secret, by the part of an MCP server's configuration."""

_IN_URL = (
    "{name} of the URL is a secret, and files must not contain secrets: set it as an "
    'environment variable, and write bearer = "env:NAME" or headers = {{ NAME = "env:NAME" }}. If '
    "the server accepts it in the URL only, add the server in code."
)


def _is_secret(name: str, value: object) -> bool:
    is_reference = isinstance(value, str) and value.startswith(("env:", "file:"))
    return not is_reference and is_literal_secret(name, value)


def _secrets_of_url(url: str) -> Iterator[str]:
    """Yield the names of the parts of a URL that contain a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return  # rejected as a URL anyway
    if parts.password:
        yield "the password"
    for name, value in parse_qsl(parts.query):
        if is_literal_secret(name, value):
            yield f"the parameter {name}"
