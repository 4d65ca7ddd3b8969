"""The registry: all tools of an application and of its MCP servers, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from tracer.errors import RegistrationError, UnknownTool
from tracer.logs import get_logger
from tracer.tools.definition import Tool, Toolkit, common_state

log = get_logger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The tool names that model providers accept."""

RESERVED_NAMES = frozenset({"planner"})
"""Names that no tool may have, because records use them for something else."""

_Tool = TypeVar("_Tool", bound=Tool | Toolkit)


class ToolServer(Protocol):
    """A server whose tools an application offers as its own, such as an `McpServer`."""

    @property
    def name(self) -> str:
        """The name of the server."""

    @property
    def mirrored(self) -> tuple[Tool, ...]:
        """The server's tools that are known now."""

    def may_provide(self, name: str) -> bool:
        """Return whether the server may have a tool of this name."""

    async def start(self) -> None:
        """Connect to the server."""

    async def aclose(self) -> None:
        """Close the connection."""


_Server = TypeVar("_Server", bound=ToolServer)


class ToolRegistry:
    """The tools that an application registers, and those of its MCP servers, by name."""

    def __init__(
        self, tools: Iterable[Tool | Toolkit] = (), servers: Iterable[ToolServer] = ()
    ) -> None:
        """Register tools, toolkits and servers; more can be added later.

        Raises:
            RegistrationError: See `register`.
        """
        self._tools: dict[str, Tool] = {}
        self._toolkits: list[Toolkit] = []
        self._state: dict[str, Any] = {}
        self._servers: dict[str, ToolServer] = {}
        self.refused: dict[str, str] = {}
        """The faulty tools of a file that were left out, with the reasons."""
        self._warned: set[tuple[str, str]] = set()
        """Server and name of each MCP tool for which a warning about a name conflict was logged."""
        for tool in tools:
            self.register(tool)
        for server in servers:
            self.add_server(server)

    @property
    def servers(self) -> tuple[ToolServer, ...]:
        """The MCP servers."""
        return tuple(self._servers.values())

    @property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits, in the order in which they were registered."""
        return tuple(self._toolkits)

    @property
    def session_state(self) -> Mapping[str, Any]:
        """A live, read-only view of the initial session state that the registered toolkits set."""
        return MappingProxyType(self._state)

    def register(self, tool: _Tool) -> _Tool:
        """Add a tool, or all tools of a toolkit, and return it.

        A registered toolkit adds its session state, but not its instructions: those are for agents
        that have the toolkit itself among their tools.

        Raises:
            RegistrationError: The object is not a `Tool`; a tool's name is taken, reserved or not
                valid for models; or two toolkits set a key of the session state to different
                values. Nothing is added in these cases.
        """
        if isinstance(tool, Toolkit):
            state = common_state([*self._toolkits, tool])
            self._add(tool.tools)
            self._toolkits.append(tool)
            self._state |= state
        else:
            self._add([tool])
        return tool

    def _add(self, tools: Sequence[Tool]) -> None:
        for each in tools:
            self._check(each)
        self._tools |= {each.name: each for each in tools}

    def _check(self, tool: Tool) -> None:
        if not isinstance(tool, Tool):
            raise RegistrationError(
                f"{getattr(tool, '__name__', type(tool).__name__)!r} is not a tool. Decorate the "
                "function with @tool, or make a tool with stateless_tool or stateful_tool."
            )
        if not _NAME.fullmatch(tool.name):
            raise RegistrationError(
                f"The tool name {tool.name!r} is invalid for models. Use at most 64 letters "
                "(without accents), digits, _ and -."
            )
        if tool.name in RESERVED_NAMES:
            raise RegistrationError(f"The tool name {tool.name!r} is reserved. Choose another.")
        if tool.name in self._tools:
            raise RegistrationError(f"Two tools are named {tool.name!r}. Rename one.")

    def add_server(self, server: _Server) -> _Server:
        """Add an MCP server, and return it. Its tools are available once it is connected.

        A `ToolService` connects the servers that are registered when it starts.

        Raises:
            RegistrationError: Another server has this name.
        """
        if server.name in self._servers:
            raise RegistrationError(f"Two MCP servers are named {server.name!r}. Rename one.")
        self._servers[server.name] = server
        return server

    def find(self, name: str) -> Tool | None:
        """Return the tool of this name; None if there is none."""
        # Does not call `tools()`, which is slower: it runs for each call, and for each tool of an
        # agent in each round.
        registered = self._tools.get(name)
        if registered is not None:
            return registered
        mirrored = (each for server in self.servers for each in server.mirrored)
        return next((each for each in mirrored if each.name == name), None)

    def read(self, name: str) -> Tool:
        """Return the tool of this name.

        Raises:
            UnknownTool: No tool has this name. The message lists the tools that exist.
        """
        tool = self.find(name)
        if tool is None:
            raise unknown_tool(name, self.tools())
        return tool

    def tagged(self, tag: str) -> tuple[Tool, ...]:
        """Return the tools that have a tag."""
        return tuple(each for each in self.tools().values() if tag in each.tags)

    def tools(self) -> Mapping[str, Tool]:
        """Return all tools by name. A registered tool takes precedence over a server's."""
        tools = dict(self._tools)
        for server in self._servers.values():
            for tool in server.mirrored:
                if tool.name not in tools:
                    tools[tool.name] = tool
                elif (server.name, tool.name) not in self._warned:
                    self._warned.add((server.name, tool.name))
                    log.warning("mcp_tool_hidden", server=server.name, tool=tool.name)
        return MappingProxyType(tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools().values())

    def __len__(self) -> int:
        return len(self.tools())


def tools_by_name(owner: str, tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """Return tools by their names.

    Args:
        owner: The owner of the tools, for the error.
        tools: The tools.

    Raises:
        RegistrationError: Two tools have the same name.
    """
    by_name: dict[str, Tool] = {}
    for each in tools:
        if each.name in by_name:
            raise RegistrationError(f"{owner} has two tools named {each.name!r}. Rename one.")
        by_name[each.name] = each
    return MappingProxyType(by_name)


def unknown_tool(name: str, offered: Iterable[str]) -> UnknownTool:
    """Return the error for an unknown tool name. It lists the tools that are offered."""
    names = ", ".join(sorted(offered)) or "none: answer without a tool"
    return UnknownTool(f"There is no tool {name!r}. Available: {names}.")
