"""The tools that there are, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from tracer.errors import RegistrationError, UnknownTool
from tracer.logs import get_logger
from tracer.tools.definition.tool import Tool
from tracer.tools.definition.toolkit import Toolkit, common_state
from tracer.tools.executors.mcp.server import McpServer

log = get_logger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the providers of models take for a tool's name."""

RESERVED_NAMES = frozenset({"planner"})
"""Names that the records give to something else."""

_Tool = TypeVar("_Tool", bound=Tool | Toolkit)


class ToolRegistry:
    """Tools by name: those that an application registers, and those of its MCP servers."""

    def __init__(
        self, tools: Iterable[Tool | Toolkit] = (), servers: Iterable[McpServer] = ()
    ) -> None:
        """Register tools, toolkits and servers; more can be added later.

        Raises:
            RegistrationError: See `register`.
        """
        self._tools: dict[str, Tool] = {}
        self._toolkits: list[Toolkit] = []
        self._state: dict[str, Any] = {}
        self._servers: dict[str, McpServer] = {}
        self._told: set[tuple[str, str]] = set()
        """The servers' tools that are hidden by another of their name, once that was logged."""
        for tool in tools:
            self.register(tool)
        for server in servers:
            self.add_server(server)

    @property
    def servers(self) -> tuple[McpServer, ...]:
        """The MCP servers."""
        return tuple(self._servers.values())

    @property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits, in the order in which they were registered."""
        return tuple(self._toolkits)

    @property
    def session_state(self) -> Mapping[str, Any]:
        """The toolkits' part of the state that a conversation begins with; always current."""
        return MappingProxyType(self._state)

    def register(self, tool: _Tool) -> _Tool:
        """Add a tool, or all tools of a toolkit, and return it.

        A registered toolkit adds its session state, but not its instructions: those are for agents
        that have the toolkit itself among their tools.

        Raises:
            RegistrationError: It is no `Tool`; a tool's name is taken, reserved or not valid for
                models; or two toolkits begin a key of the session state with different values.
                Nothing of the toolkit is added then.
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
                f"A model can't write the tool name {tool.name!r}: use letters without accents, "
                "digits, _ and -, at most 64."
            )
        if tool.name in RESERVED_NAMES:
            raise RegistrationError(f"The name {tool.name!r} is reserved: choose another.")
        if tool.name in self._tools:
            raise RegistrationError(
                f"There is a tool {tool.name!r} already: give each its own name."
            )

    def add_server(self, server: McpServer) -> McpServer:
        """Add an MCP server, and return it; its tools are here once it is connected.

        A `ToolService` connects those that are there when it starts.

        Raises:
            RegistrationError: There is one of its name.
        """
        if server.name in self._servers:
            raise RegistrationError(
                f"There is an MCP server {server.name!r} already: give each its own name."
            )
        self._servers[server.name] = server
        return server

    def find(self, name: str) -> Tool | None:
        """Return the tool of this name; None where there is none."""
        # Without `tools()`: asked for each call, and for each tool of an agent in each round.
        own = self._tools.get(name)
        if own is not None:
            return own
        mirrored = (each for server in self.servers for each in server.mirrored)
        return next((each for each in mirrored if each.name == name), None)

    def read(self, name: str) -> Tool:
        """Return the tool of this name.

        Raises:
            UnknownTool: There is none; the message names those that there are.
        """
        found = self.find(name)
        if found is None:
            raise unknown_tool(name, self.tools())
        return found

    def tagged(self, tag: str) -> tuple[Tool, ...]:
        """Return the tools that have a label."""
        return tuple(each for each in self.tools().values() if tag in each.tags)

    def tools(self) -> Mapping[str, Tool]:
        """Return all tools by name; an application's own come before a server's."""
        found = dict(self._tools)
        for server in self._servers.values():
            for tool in server.mirrored:
                if tool.name not in found:
                    found[tool.name] = tool
                elif (server.name, tool.name) not in self._told:
                    self._told.add((server.name, tool.name))
                    log.warning("mcp_tool_hidden", server=server.name, tool=tool.name)
        return MappingProxyType(found)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools().values())

    def __len__(self) -> int:
        return len(self.tools())


def tools_by_name(owner: str, tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """Return tools by their names.

    Args:
        owner: Whose tools they are, for the error.
        tools: The tools.

    Raises:
        RegistrationError: Two have the same name: a model could not tell them apart.
    """
    named: dict[str, Tool] = {}
    for each in tools:
        if each.name in named:
            raise RegistrationError(
                f"{owner} has two tools with the name {each.name!r}: give each its own."
            )
        named[each.name] = each
    return MappingProxyType(named)


def unknown_tool(name: str, offered: Iterable[str]) -> UnknownTool:
    """Return the error that a name is no tool's; it names those that are offered."""
    names = ", ".join(sorted(offered)) or "none: answer without a tool"
    return UnknownTool(f"There is no tool {name!r}. Available: {names}.")
