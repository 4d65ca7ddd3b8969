"""What a file says of one tool, by the kind of tool."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PositiveFloat, PositiveInt

from tracer.tools.definition.tool import Tool
from tracer.tools.executors.rest.config import RestConfig


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise ValueError('has to be the schema of an object: begin with type = "object"')
    return schema


Parameters = Annotated[dict[str, Any], AfterValidator(_of_object)]
"""The JSON Schema of a tool's arguments."""


class ToolEntry(BaseModel):
    """What may be said of any tool that runs here; see the fields of `Tool`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    description: str | None = None
    """Unless given, from the docstring, where there is one."""
    parameters: Parameters | None = None
    """Unless given, from the signature, where there is one."""
    tags: list[str] = []
    timeout: PositiveFloat | None = None
    max_attempts: PositiveInt = Tool.max_attempts
    concurrency: str = Tool.concurrency
    max_parallel: PositiveInt | None = None
    hooks: list[str] = []
    """Names in the functions that the program hands to the reader, or `module:name`."""
    hidden: dict[str, Literal["token", "user_id"]] = {}
    """Parameters that the runtime fills, by name: `{ token_id = "token" }`."""


class StatelessEntry(ToolEntry):
    """A function."""

    type: Literal["STATELESS"]
    function: str | None = None
    """A name in the functions that the program hands to the reader, or `module:name`. Unless
    given, the tool's own name in those functions."""


class StatefulEntry(ToolEntry):
    """An object for each conversation."""

    type: Literal["STATEFUL"]
    create: str | None = None
    """What makes it; named as a `StatelessEntry.function` is."""


class RestEntry(ToolEntry):
    """An HTTP request."""

    type: Literal["REST"]
    description: str
    parameters: Parameters
    config: RestConfig


class McpEntry(BaseModel):
    """One tool of an MCP server; what it does and takes, the server says."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    type: Literal["MCP"]
    config: dict[str, Any]
    """The fields of a `McpConfig`; it is read together with the server's other tools."""


ENTRIES: dict[str, type[ToolEntry | McpEntry]] = {
    "STATELESS": StatelessEntry,
    "STATEFUL": StatefulEntry,
    "REST": RestEntry,
    "MCP": McpEntry,
}
"""What is said of a tool, by its `type`."""
