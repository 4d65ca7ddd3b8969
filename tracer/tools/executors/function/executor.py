"""Define STATELESS tools from a function and a JSON Schema that the application supplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from tracer.tools.definition.arguments import JsonSchema
from tracer.tools.definition.signature import hidden_parameters
from tracer.tools.definition.tool import Tool, ToolOptions, ToolType, runner_of
from tracer.tools.executors.function.matching import matching


def stateless_tool(
    *,
    name: str,
    description: str,
    parameters: JsonSchema,
    execute: Callable[..., Any],
    **options: Unpack[ToolOptions],
) -> Tool:
    """Define a tool from a function and a JSON Schema.

    Args:
        name: The name for the model.
        description: The description for the model.
        parameters: The JSON Schema of its arguments, an object.
        execute: The function, synchronous or not. It receives the arguments by name; or all of them
            as one dict, if it has a single parameter that is not in the schema.
        options: See `Tool`.

    Raises:
        RegistrationError: The schema and the function do not match, or the tool cannot work as it
            is defined.
    """
    hidden = hidden_parameters(name, options.get("hidden", {}))
    matched = matching(name, execute, parameters, hidden)
    return Tool(
        name=name,
        description=description,
        parameters=matched.parameters,
        run=runner_of(matched.execute),
        tool_type=ToolType.STATELESS,
        **options,
    )
