"""Local tools, each of which calls a tool that an MCP server lists, and their results."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from tracer.context import ToolContext
from tracer.errors import InvalidArguments, InvalidResult, RegistrationError, ToolError
from tracer.logs import get_logger
from tracer.tools.definition.arguments import Arguments, JsonSchema, schema_check
from tracer.tools.definition.hidden_parameters import parameter_names, without_absent
from tracer.tools.definition.results import result_text
from tracer.tools.definition.tool import Tool, ToolType
from tracer.tools.executors.mcp.config import McpConfig

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock
    from mcp_types import Tool as ListedTool

log = get_logger(__name__)

DESCRIPTION_CHARACTERS = 4_000
"""The longest description of a tool. The server chooses this text, and each request to a model
contains it."""

NAME_CHARACTERS = 64

REASON_CHARACTERS = 500
"""How much of an error is logged. It may quote the schema of a server that is not trusted."""

ERROR_CHARACTERS = 4_000
"""How much of a server's error message is used."""

CallByName = Callable[[str, dict[str, Any], ToolContext], Awaitable[Any]]
"""Calls a tool of the server. The first argument is the tool's name on the server."""


def mirrored(listed: Iterable[ListedTool], config: McpConfig, call: CallByName) -> tuple[Tool, ...]:
    """Return a local tool for each tool that a server lists, which calls the server's tool.

    A tool is skipped with a warning if its schema refers to another document, or if another tool
    has the same local name.

    Args:
        listed: The tools that the server lists.
        config: The server's configuration.
        call: Calls a tool of the server.
    """
    tools: dict[str, Tool] = {}
    for remote in listed:
        if config.tools is not None and remote.name not in config.tools:
            continue
        name = local_name(remote.name, config.prefix)
        if name in tools:
            _warn(config, remote, "Another tool of the server has the same local name.")
            continue
        try:
            tools[name] = _mirror(name, remote, config, call)
        except (ValueError, RegistrationError) as error:
            _warn(config, remote, error)
    return tuple(tools.values())


def local_name(name: str, prefix: str | None) -> str:
    """Return a local name for a server's tool, with only characters that model providers accept."""
    full = name if prefix is None else f"{prefix}_{name}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", full)[:NAME_CHARACTERS]


def may_provide(config: McpConfig, name: str) -> bool:
    """Return whether a server of this configuration may have a tool of this local name."""
    if config.tools is not None:
        return name in {local_name(each, config.prefix) for each in config.tools}
    if not name or name != local_name(name, None):
        return False
    return config.prefix is None or name.startswith(local_name("", config.prefix))


def _mirror(name: str, remote: ListedTool, config: McpConfig, call: CallByName) -> Tool:
    parameters = remote.input_schema
    present = parameter_names(parameters)
    hidden = {each: kind for each, kind in config.hidden.items() if each in present}

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        return await call(remote.name, without_absent(arguments, hidden), context)

    hints = remote.annotations
    may_repeat = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
    return Tool(
        name=name,
        description=(remote.description or remote.title or "")[:DESCRIPTION_CHARACTERS],
        parameters=parameters,
        hidden=hidden,
        run=run,
        tool_type=ToolType.MCP,
        timeout=config.timeout,
        max_attempts=config.max_attempts if may_repeat else 1,
        tags=config.tags,
        check_result=result_check(remote.output_schema) if remote.output_schema else None,
    )


def _warn(config: McpConfig, remote: ListedTool, problem: object) -> None:
    tool = remote.name[:NAME_CHARACTERS]
    reason = str(problem)[:REASON_CHARACTERS]
    log.warning("mcp_tool_left_out", server=config.name, tool=tool, reason=reason)


def result_of(answer: CallToolResult, max_bytes: int) -> Any:
    """Return a tool's result.

    The result is the response's structured content. Without structured content, it is the text if
    all blocks are text, and otherwise all blocks as JSON. The response's `_meta` is not used.

    Args:
        answer: The server's response.
        max_bytes: The largest size of the result.

    Raises:
        ToolError: The tool failed, or the result is too large.
    """
    if answer.is_error:
        message = "\n".join(_texts(answer.content)) or "The tool failed without a message."
        error = ToolError(message)
        error.max_characters = ERROR_CHARACTERS
        raise error
    result = answer.structured_content
    if result is None:
        texts = _texts(answer.content)
        is_text = len(texts) == len(answer.content)
        result = "\n".join(texts) if is_text else [_as_json(block) for block in answer.content]
    size = len(result_text(result).encode(errors="surrogatepass"))
    if size > max_bytes:
        raise ToolError(
            f"The result has {size} bytes; at most {max_bytes} are accepted. Request less at once."
        )
    return result


def result_check(schema: JsonSchema) -> Callable[[Any], Any]:
    """Return a function that checks results against a tool's output schema.

    The function returns the result, or raises `InvalidResult` with a message that does not quote
    the result.

    Raises:
        ValueError: `schema` is not a JSON Schema, or refers to another document.
    """
    check_arguments = schema_check(schema)

    def check(result: Any) -> Any:
        try:
            return check_arguments(result)
        except InvalidArguments as error:
            raise InvalidResult(
                "The tool's result does not match the output schema that its server declares, "
                "so it was discarded."
            ) from error

    return check


def _texts(content: list[ContentBlock]) -> list[str]:
    return [block.text for block in content if block.type == "text"]


def _as_json(block: ContentBlock) -> dict[str, Any]:
    return block.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        exclude={"meta": True, "resource": {"meta": True}},
    )
