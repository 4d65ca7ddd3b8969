"""What an MCP server answered to a call, as the tool's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracer.errors import InvalidArguments, InvalidResult, ToolError
from tracer.tools.definition.arguments import JsonSchema, schema_check
from tracer.tools.definition.results import result_text

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

ERROR_CHARACTERS = 4_000
"""How much of a server's own words about a failure is told."""


def result_of(answer: CallToolResult, max_bytes: int) -> Any:
    """Return a tool's result.

    That is the answer's structured content where it has any; else its text, the blocks as lines;
    else, with other blocks among them, all blocks as JSON. Nobody sees the answer's `_meta`.

    Args:
        answer: What the server answered.
        max_bytes: How big the result may be.

    Raises:
        ToolError: The server says that the tool failed, or the result is too big.
    """
    if answer.is_error:
        said = "\n".join(_texts(answer.content)) or "The tool failed and did not say why."
        error = ToolError(said)
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
            f"The result has {size} bytes, more than the {max_bytes} that are taken. "
            "Ask the tool for less at once."
        )
    return result


def result_check(schema: JsonSchema) -> Callable[[Any], Any]:
    """Return a function that holds results against a tool's output schema and hands them on.

    The function raises `InvalidResult`, which repeats nothing of the result.

    Raises:
        ValueError: `schema` is no JSON Schema, or refers to another document.
    """
    check_arguments = schema_check(schema)

    def check(result: Any) -> Any:
        try:
            return check_arguments(result)
        except InvalidArguments as error:
            raise InvalidResult(
                "The tool's result does not fit the schema that its server declares, "
                "so it was thrown away."
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
