"""Tools in a file: `tools.toml` says which tools there are, and which MCP servers.

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

Tools may stand in a list as well: `[[tools]]`, each with its `name`.
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
    in_present_names,
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

    Names of earlier versions are understood, with a `DeprecationWarning` that says what to write.

    Args:
        path: The file; paths to schemas within it are relative to it.
        functions: What `function`, `create` and `hooks` may name, besides `module:name`; and where
            a tool that names none is looked up by its own name.

    Returns:
        A registry that holds them; more can be registered.

    Raises:
        RegistrationError: The file can't be read, or says what can't be; all problems at once.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} can't be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise RegistrationError(f"{path.name} is no TOML: {error}.") from error
    reading = _Reading(path, functions or {})
    reading.read(content)
    reading.problems.tell()
    if reading.deprecated:
        text = "\n- ".join([f"{path.name} is written in old names:", *reading.deprecated])
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    for config in reading.servers.values():
        reading.registry.add_server(McpServer(config))
    return reading.registry


class _Reading:
    """One file while it is read."""

    def __init__(self, path: Path, functions: Functions) -> None:
        self.registry = ToolRegistry()
        self.servers: dict[str, McpConfig] = {}
        self.problems = DefinitionProblems(path.name)
        self.deprecated: list[str] = []
        self._described: set[str] = set()
        """The names of the servers that the file describes, correctly or not."""
        self._without_address: list[tuple[str, McpEntry]] = []
        """MCP tools whose server is described elsewhere, with their places."""
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
        for place, entry in self._entries(content.get("tools", {})):
            self._read_tool(place, entry)
        for place, tool_entry in self._without_address:
            self._add_to_server(place, tool_entry)

    def _entries(self, tools: object) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give each tool's place and entry, its name in it."""
        if isinstance(tools, dict):
            for name, entry in tools.items():
                if not isinstance(entry, dict):
                    self.problems.add(f"tools.{name}", "write each tool as a table, [tools.NAME].")
                elif entry.get("name", name) != name:
                    self.problems.add(f"tools.{name}.name", "is another than the table's: drop it.")
                else:
                    yield f"tools.{name}", {**entry, "name": name}
        elif isinstance(tools, list) and all(isinstance(each, dict) for each in tools):
            for position, entry in enumerate(tools, start=1):
                yield f"tools.{entry.get('name', f'number {position}')}", entry
        else:
            self.problems.add("tools", "write each tool as a table, [tools.NAME].")

    def _read_tool(self, place: str, written: dict[str, Any]) -> None:
        entry = in_present_names(place, written, self._deprecate, self.problems.add)
        kind = str(entry.get("type", ""))
        if kind not in ENTRIES:
            advice = "Tools of other types are made in code."
            what = unknown_name("type", kind, ENTRIES, advice)
            self.problems.add(f"{place}.type", what if kind else "is missing: give it.")
            return
        if kind == "MCP" and isinstance(entry.get("config"), dict):
            entry["config"] = self._without_secrets(f"{place}.config", entry["config"])
        if isinstance(entry.get("parameters"), str):
            entry["parameters"] = self._schema(f"{place}.parameters", entry["parameters"])
        read = self.problems.read(place, ENTRIES[kind], entry)
        if isinstance(read, McpEntry) and not {"url", "command"} & read.config.keys():
            self._without_address.append((f"{place}.config", read))
        elif isinstance(read, McpEntry):
            self._read_server(f"{place}.config", read.name, read.config, {read.name})
        elif read is not None:
            try:
                made = self._made(place, read)
                if made is not None:
                    self.registry.register(made)
            except RegistrationError as error:
                self.problems.add(place, str(error))

    def _made(self, place: str, entry: ToolEntry) -> Tool | None:
        options = self._options(place, entry)
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
        function = self._function(f"{place}.{key}", entry.name, getattr(entry, key))
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

    def _options(self, place: str, entry: ToolEntry) -> ToolOptions:
        given = entry.model_dump(include=set(ToolOptions.__annotations__), exclude_unset=True)
        hooks = [
            self.problems.named(f"{place}.hooks", each, self._functions) for each in entry.hooks
        ]
        options: ToolOptions = {**given, "hooks": [each for each in hooks if each is not None]}  # type: ignore[typeddict-item]
        return options

    def _function(self, place: str, tool_name: str, name: str | None) -> Callable[..., Any] | None:
        if name is None and tool_name not in self._functions:
            self.problems.add(
                place,
                f"is missing: name it, as module:name, or hand it over, as "
                f"read_tools(…, functions={{{tool_name!r}: …}}).",
            )
            return None
        found: object = self.problems.named(place, name or tool_name, self._functions)
        if isinstance(found, Tool):
            self.problems.add(place, "is a tool already: register it in code, or drop its @tool.")
        elif callable(found):
            return found
        elif found is not None:
            self.problems.add(place, "can't be called: name a function or a class.")
        return None

    def _schema(self, place: str, file: str) -> Any:
        """Return what a file beside this one holds; nothing, and a problem kept, for none."""
        try:
            return json.loads((self._folder / file).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            self.problems.add(place, f"{file!r} can't be read as JSON: {error}.")
            return {"type": "object"}

    def _read_server(
        self, place: str, name: str, config: object, tools: set[str] | None = None
    ) -> None:
        """Keep a server; one that is there already gets more tools.

        Args:
            place: Where the configuration stands.
            name: The server's name, unless the configuration says another.
            config: The configuration.
            tools: Which of its tools are meant, unless the configuration says it.
        """
        if not isinstance(config, dict):
            self.problems.add(place, "has to be a table, with a command or a url.")
            return
        if tools is None:
            config = self._without_secrets(place, config)
        given = {"name": name, "tools": tools, **config}
        self._described.add(str(given["name"]))
        found = self.problems.read(place, McpConfig, given)
        if found is None:
            return
        known = self.servers.setdefault(found.name, found)
        if known.model_copy(update={"tools": found.tools}) != found:
            self.problems.add(place, f"the server {found.name!r} is described otherwise elsewhere.")
        elif known.tools is not None:
            both = None if found.tools is None else known.tools | found.tools
            self.servers[found.name] = found.model_copy(update={"tools": both})

    def _add_to_server(self, place: str, entry: McpEntry) -> None:
        """Add a tool to a server that another part of the file describes."""
        name = entry.config.get("name", entry.name)
        known = self.servers.get(name) if isinstance(name, str) else None
        if known is None:
            if str(name) in self._described:
                return  # the faulty description is reported already
            self.problems.add(
                place,
                f"the file has no address of the server {name!r}: add url = "
                f'"https://…/mcp" here, or a table [servers.{name}] with a url or a command.',
            )
            return
        described = known.model_dump(exclude={"tools"}, exclude_unset=True)
        self._read_server(place, name, {**described, **entry.config}, {entry.name})

    def _without_secrets(self, place: str, config: dict[str, Any]) -> dict[str, Any]:
        """Return an MCP server's configuration without literal secrets, and add a problem for each.

        Only files are checked: code may compute a header's value when the program starts.
        """
        config = dict(config)
        for part, advice in _ADVICE.items():
            values = config.get(part)
            if not isinstance(values, dict):
                continue
            found = [name for name, each in values.items() if _is_secret(name, each)]
            for name in found:
                self.problems.add(f"{place}.{part}.{name}", advice.format(name=name))
            config[part] = {name: each for name, each in values.items() if name not in found}
        url = config.get("url")
        for name in _secrets_of_url(url) if isinstance(url, str) else ():
            self.problems.add(f"{place}.url", _IN_URL.format(name=name))
        return config

    def _deprecate(self, place: str, what: str) -> None:
        self.deprecated.append(f"{place}: {what}.")


_ELSEWHERE = "a secret does not stand in a file: set it as an environment variable, and write "

_ADVICE = {
    "headers": _ELSEWHERE + '{name} = "env:NAME", or bearer = "env:NAME" beside the headers.',
    "env": _ELSEWHERE + '{name} = "env:NAME".',
}
"""The advice for a literal secret, by the part of an MCP server's configuration."""

_IN_URL = (
    "{name} of the URL holds a secret, and files must not contain secrets: set it as an "
    'environment variable, and write bearer = "env:NAME" or headers = {{ NAME = "env:NAME" }}. If '
    "the server accepts it in the URL only, add the server in code."
)


def _is_secret(name: str, value: object) -> bool:
    is_reference = isinstance(value, str) and value.startswith(("env:", "file:"))
    return not is_reference and is_literal_secret(name, value)


def _secrets_of_url(url: str) -> Iterator[str]:
    """Yield the names of the parts of a URL that hold a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return  # refused as a URL anyway
    if parts.password:
        yield "the password"
    for name, value in parse_qsl(parts.query):
        if is_literal_secret(name, value):
            yield f"the parameter {name}"
