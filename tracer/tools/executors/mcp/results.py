"""The result of an MCP tool, from the server's response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracer.errors import InvalidArguments, InvalidResult, ToolError
from tracer.tools.definition.arguments import JsonSchema, schema_check
from tracer.tools.definition.results import result_text

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

ERROR_CHARACTERS = 4_000
"""How much of a server's error message is used."""


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
