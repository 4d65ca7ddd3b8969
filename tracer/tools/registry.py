"""The tools of one agent, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tracer.errors import ConfigurationError, UnknownTool
from tracer.tools.definition import Tool


def tools_by_name(owner: str, tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """Return tools by their names.

    Args:
        owner: Whose tools they are, for the error.
        tools: The tools.

    Raises:
        ConfigurationError: Two have the same name: a model could not tell them apart.
    """
    named: dict[str, Tool] = {}
    for each in tools:
        if each.name in named:
            raise ConfigurationError(
                f"{owner} has two tools with the name {each.name!r}: give each its own."
            )
        named[each.name] = each
    return MappingProxyType(named)


def find_tool(tools: Mapping[str, Tool], name: str, offered: Iterable[str]) -> Tool:
    """Return the tool that a model named.

    Args:
        tools: The agent's tools.
        name: The name, as the model wrote it.
        offered: Those that the model may choose from, for the error.

    Raises:
        UnknownTool: There is none; the message names those that are offered.
    """
    found = tools.get(name)
    if found is None:
        names = ", ".join(sorted(offered)) or "none: answer without a tool"
        raise UnknownTool(f"There is no tool {name!r}. Available: {names}.")
    return found
