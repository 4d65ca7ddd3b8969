"""Parse definition files with pydantic. One error reports the problems, each with its location."""

from __future__ import annotations

import importlib
import json
import operator
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from tracer.errors import RegistrationError
from tracer.logs import get_logger
from tracer.tools.definition import Concurrency, Tool, ToolOptions, tool
from tracer.tools.functions import stateful_tool, stateless_tool
from tracer.tools.http_clients import is_literal_secret
from tracer.tools.mcp import McpConfig, McpServer
from tracer.tools.registry import ToolRegistry
from tracer.tools.rest import RestConfig, rest_tool
from tracer.tools.signature import description_of, hidden_by_type

Content = TypeVar("Content")


class FileProblems(RegistrationError):
    """A definition file has errors."""

    def __init__(self, file: str, problems: Mapping[str, tuple[str, ...]]) -> None:
        """Describe the errors.

        Args:
            file: The file's name.
            problems: The location of each error, by its description with the location.
        """
        self.file = file
        self.problems = problems
        super().__init__("\n- ".join([f"{file} has errors. Correct them:", *problems]))

    def by_entry(self, table: str) -> dict[str, str]:
        """Return the errors of each entry of a table.

        Raises:
            FileProblems: Other parts of the file have errors.
        """
        found: dict[str, str] = {}
        others = {}
        for text, location in self.problems.items():
            if location[:1] == (table,) and len(location) > 1:
                found[location[1]] = (
                    f"{found[location[1]]} {text}" if location[1] in found else text
                )
            else:
                others[text] = location
        if others:
            raise FileProblems(self.file, others) from None
        return found


def parsed(file: str, adapter: TypeAdapter[Content], content: object, **context: Any) -> Content:
    """Return the content of a definition file as the adapter's type.

    Args:
        file: The file's name, for the error.
        adapter: The type.
        content: The content.
        context: The context of the validators: `functions` for fields that are `Named`.

    Raises:
        FileProblems: The content has errors. The message has a line for each, which does not
            quote values of the file, because they may be secrets.
    """
    try:
        return adapter.validate_python(content, context=context)
    except ValidationError as error:
        details = error.errors(include_input=False, include_context=False, include_url=False)
    problems = {}
    for each in details:
        location = tuple(map(str, each["loc"]))
        text = f"{'.'.join(location) or 'file'}: {each['msg'].removeprefix('Value error, ')}."
        problems[text] = location
    raise FileProblems(file, problems)


def _resolved(name: object, info: ValidationInfo) -> object:
    functions = info.context["functions"] if info.context else {}
    if not isinstance(name, str):
        raise ValueError("must be text")
    if name in functions:
        return functions[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(sorted(functions)) or "none"
        raise ValueError(
            f"unknown name {name!r}. Choose from: {known}. Or write module:name, or pass the "
            "object to the function that reads the file"
        )
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be imported: {error}") from None


Named = Annotated[Any, PlainValidator(_resolved)]
"""An object that the file names: a key of the context's `functions`, or `module:name`."""


# --- The pydantic models of `tools.toml`. They also read the names of earlier versions.


def _code(value: object) -> object:
    if not callable(value):
        raise ValueError("must name a function or a class. Register a Tool in code")
    return value


def _schema(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str) and info.context:
        try:
            value = json.loads((info.context["folder"] / Path(value)).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"cannot be read as JSON: {error}") from None
    if not isinstance(value, dict) or value.get("type") != "object":
        raise ValueError('must be the schema of an object: begin with type = "object"')
    return value


Code = Annotated[Named, AfterValidator(_code)]
"""A function or a class."""

Parameters = Annotated[dict[str, Any], BeforeValidator(_schema)]
"""The JSON Schema of a tool's arguments, or the path of its file."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str


class ToolEntry(_Entry):
    """The options that all kinds of tools have; see the fields of `Tool`."""

    description: str | None = None
    """By default, the docstring of the function, without its sections."""
    parameters: Parameters | None = None
    """By default, derived from the signature of the function."""
    tags: list[str] = []
    timeout: PositiveFloat | None = None
    max_attempts: PositiveInt = Tool.max_attempts
    concurrency: Concurrency = Tool.concurrency
    max_parallel: PositiveInt | None = None
    tool_hooks: list[Named] = []
    hidden: dict[str, Literal["token", "user_id"]] = {}
    """Parameters that the runtime fills, by name: `{ token_id = "token" }`."""

    @property
    def options(self) -> ToolOptions:
        """The options that the file sets."""
        names = self.model_fields_set & ToolOptions.__annotations__.keys()
        return {name: getattr(self, name) for name in names}  # type: ignore[return-value]


class StatelessEntry(ToolEntry):
    """A stateless tool: a function."""

    type: Literal["STATELESS"]
    function: Code
    """By default, the object of `functions` that has the tool's name."""

    def tool(self) -> Tool:
        """Return the tool."""
        function = self.function
        if self.parameters is None:
            return tool(name=self.name, description=self.description, **self.options)(function)
        options = self.options
        options["hidden"] = {**hidden_by_type(function), **self.hidden}
        return stateless_tool(
            name=self.name,
            description=self.description or description_of(function),
            parameters=self.parameters,
            execute=function,
            **options,
        )


class StatefulEntry(ToolEntry):
    """A stateful tool: an object with one instance for each conversation."""

    type: Literal["STATEFUL"]
    create: Code
    """The function or class that makes the object; see `StatelessEntry.function`."""

    def tool(self) -> Tool:
        """Return the tool."""
        return stateful_tool(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            create=self.create,
            **self.options,
        )


class RestEntry(ToolEntry):
    """A REST tool, which sends an HTTP request."""

    type: Literal["REST"]
    description: str
    parameters: Parameters
    config: RestConfig

    def tool(self) -> Tool:
        """Return the tool."""
        return rest_tool(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            config=self.config,
            **self.options,
        )


class ServerTable(BaseModel):
    """A part of the description of an MCP server: fields of `McpConfig`."""

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)

    name: str | None = None
    tools: list[str] | None = None


class McpEntry(_Entry):
    """One tool of an MCP server, which supplies the description and the parameters."""

    type: Literal["MCP"]
    config: ServerTable
    """The server. Several tools may describe it."""


def _present_names(entry: object, info: ValidationInfo) -> object:
    """Return a tool's entry with present names, and the default of `function` or `create`."""
    if not isinstance(entry, dict):
        return entry
    entry = {name: value for name, value in entry.items() if name != "id"}
    metadata = entry.pop("metadata", {})
    if not isinstance(metadata, dict):
        raise ValueError("metadata must be a table")
    for old, present in {"customFields": "config", "executor": "create", "tags": "tags"}.items():
        if old in metadata:
            entry.setdefault(present, metadata[old])
    kind = entry.get("type")
    if isinstance(kind, str):
        kind = entry["type"] = {"BUILTIN": "STATELESS", "NATIVE": "STATEFUL"}.get(kind, kind)
    if kind == "MCP":
        entry = {k: v for k, v in entry.items() if k not in ("description", "parameters")}
    elif kind in ("STATELESS", "STATEFUL"):
        entry.setdefault("function" if kind == "STATELESS" else "create", entry.get("name"))
    config = entry.get("config")
    if isinstance(config, dict):
        names = {"baseUrl": "base_url", "serverName": "name", "serverUrl": "url"}
        is_old = names.keys() & config.keys() or "customFields" in metadata
        if is_old and isinstance(config.get("timeout"), (int, float)):
            config = {**config, "timeout": config["timeout"] / 1000}  # was in milliseconds
        entry["config"] = {names.get(name, name): value for name, value in config.items()}
    return entry


_AnyTool = Annotated[
    StatelessEntry | StatefulEntry | RestEntry | McpEntry, Field(discriminator="type")
]


def by_name(tools: object) -> object:
    """Return the tools of a file, which may be a list, by their names.

    The key of a tool without a name, or with a name that another tool has, is its number.
    """
    if isinstance(tools, dict):
        entries = tools.items()
        return {name: {"name": name, **t} if isinstance(t, dict) else t for name, t in entries}
    if not isinstance(tools, list):
        raise ValueError("write each tool as a table, [tools.NAME]")
    named: dict[str, Any] = {}
    for position, entry in enumerate(tools, start=1):
        name = entry.get("name") if isinstance(entry, dict) else None
        named[f"number {position}" if name is None or str(name) in named else str(name)] = entry
    return named


class ToolFile(BaseModel):
    """The content of `tools.toml`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    tools: Annotated[
        dict[str, Annotated[_AnyTool, BeforeValidator(_present_names)]], BeforeValidator(by_name)
    ] = {}
    servers: dict[str, ServerTable] = {}

    def tools_of(self, server: str) -> list[str]:
        """Return the tools that describe an MCP server."""
        tools = self.tools.values()
        mcp = [each for each in tools if isinstance(each, McpEntry)]
        return [each.name for each in mcp if (each.config.name or each.name) == server]

    def server_tables(self, refused: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Return the description of each MCP server, put together from its parts.

        Args:
            refused: Receives the tools that contradict another description, with the reason.
        """
        servers: dict[str, dict[str, Any]] = {}
        for name, table in self.servers.items():
            config = {"name": name, **table.model_dump(exclude_none=True)}
            servers[config["name"]] = config
        for entry in self.tools.values():
            if not isinstance(entry, McpEntry):
                continue
            name = entry.config.name or entry.name
            server = servers.setdefault(name, {"name": name, "tools": []})
            described = entry.config.model_extra or {}
            if any(server.get(key, value) != value for key, value in described.items()):
                refused[entry.name] = (
                    f"tools.{entry.name}.config: contradicts another description of the server "
                    f"{name!r}."
                )
                continue
            server |= described
            if "tools" in server:
                server["tools"] = [
                    *server["tools"],
                    *([entry.name] if entry.config.tools is None else entry.config.tools),
                ]
        return servers


class ServerEntry(McpConfig):
    """The description of an MCP server in a file, which must not contain secrets.

    Servers that are defined in code are not checked: code may read a header from elsewhere.
    """

    @field_validator("headers", "env")
    @classmethod
    def _has_no_secret(cls, values: dict[str, str]) -> dict[str, str]:
        for name, value in values.items():
            if not value.startswith(("env:", "file:")) and is_literal_secret(name, value):
                raise ValueError(
                    f"files must not contain secrets: set {name} as an environment variable, and "
                    f'write {name} = "env:NAME"'
                )
        return values

    @field_validator("url")
    @classmethod
    def _has_no_secret_in_url(cls, url: str | None) -> str | None:
        for name in _secrets_of_url(url or ""):
            raise ValueError(
                f"{name} of the URL is a secret, and files must not contain secrets: set it as an "
                'environment variable, and write bearer = "env:NAME" or headers = { NAME = '
                '"env:NAME" }. If the server accepts it in the URL only, add the server in code'
            )
        return url


class Servers(BaseModel):
    """The MCP servers of a file."""

    model_config = ConfigDict(hide_input_in_errors=True)

    servers: dict[str, ServerEntry]


def _secrets_of_url(url: str) -> Iterator[str]:
    """Yield the names of the parts of a URL that contain a secret."""
    parts = urlsplit(url)
    if parts.password:
        yield "the password"
    for name, value in parse_qsl(parts.query):
        if is_literal_secret(name, value):
            yield f"the parameter {name}"


# --- Read tools and MCP servers from a file, `tools.toml`.
#
#     [tools.add]
#     type = "STATELESS"
#     function = "clinic.sums:add"
#
#     [tools.read_weather]
#     type = "REST"
#     description = "Read the weather of a city."
#     parameters = "read_weather.json"
#     config = { base_url = "https://weather.example", path = "/v1/{city}" }
#
#     [servers.clock]
#     command = "mcp-server-time"
#
# Tools may also be a list: `[[tools]]`, each with its `name`.

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
