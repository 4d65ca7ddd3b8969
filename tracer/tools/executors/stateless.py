"""STATELESS tools of functions that do not say themselves what they take; else see `tool`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from tracer.tools.arguments import JsonSchema
from tracer.tools.definition import Tool, ToolOptions, ToolType, runner_of


def stateless_tool(
    *,
    name: str,
    description: str,
    parameters: JsonSchema,
    execute: Callable[..., Any],
    hidden: Mapping[str, Any] | None = None,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Make a tool of a function and a JSON Schema.

    Args:
        name: What the model calls it.
        description: What it does, for the model.
        parameters: The JSON Schema of its arguments, an object.
        execute: The function, synchronous or not; receives the arguments by name.
        hidden: What it receives from the runtime, by name: `{"user_id": UserId}`.
        options: See `Tool`.

    Raises:
        RegistrationError: It cannot work as it is defined.
    """
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        hidden=hidden or {},
        run=runner_of(execute),
        tool_type=ToolType.STATELESS,
        **options,
    )
