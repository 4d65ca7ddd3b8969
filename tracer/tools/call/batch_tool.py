"""Batch tools: call another tool once for each item of a list."""

from __future__ import annotations

import json
from typing import Any

from tracer.context import ToolContext
from tracer.errors import MissingToolCallId, ToolError
from tracer.records.status import Status
from tracer.tools.call.active_run import run_of
from tracer.tools.call.batch import Call, CallBatch
from tracer.tools.definition.arguments import schema_check
from tracer.tools.definition.results import Ending
from tracer.tools.definition.tool import Tool, ToolType

MAX_ITEMS = 1000
"""The largest number of items in one call."""


def batch_tool(
    tool: Tool, *, name: str | None = None, description: str | None = None, max_parallel: int = 8
) -> Tool:
    """Return a tool that takes a list of items, each the arguments of one call of `tool`.

    Every item is recorded as a tool call of its own under the batch call, and sub-plans are linked
    to their item. The result lists the outcome of each item, in order. The batch fails only if
    every item fails.

    Args:
        tool: The tool for one item.
        name: The name for the model; by default the tool's name with the suffix `_each`.
        description: The description for the model.
        max_parallel: How many items run at once.
    """
    item_schema = {**tool.parameters}
    # `$ref` is resolved from the root of the document, so definitions move to the new root.
    definitions = item_schema.pop("$defs", None)
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"items": {"type": "array", "maxItems": MAX_ITEMS, "items": item_schema}},
        "required": ["items"],
        "additionalProperties": False,
    }
    if definitions:
        parameters["$defs"] = definitions

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return await _run_batch(tool, arguments["items"], context, max_parallel)

    return Tool(
        name=name or f"{tool.name}_each",
        description=description or f"For each item: {tool.description}",
        parameters=parameters,
        check=_check_items,
        run=run,
        tool_type=ToolType.BATCH,
        ends_by_itself=True,
        opens_plans=tool.opens_plans,
        tags=tool.tags,
        item_tool=tool,
    )


_check_items = schema_check(
    {
        "type": "object",
        # Each item is checked by its own call: an invalid item fails, and the others still run.
        "properties": {"items": {"type": "array", "maxItems": MAX_ITEMS}},
        "required": ["items"],
        "additionalProperties": False,
    }
)


async def _run_batch(tool: Tool, items: list[Any], context: ToolContext, max_parallel: int) -> str:
    if context.tool_call_id is None:
        raise MissingToolCallId(
            "The tool context has no tool_call_id, so items cannot refer to their batch call."
        )
    run = run_of(context)
    calls = [
        Call(
            tool_call_id=run.new_id(),
            position=position,
            tool=tool,
            name=tool.name,
            arguments=json.dumps(item, ensure_ascii=False, separators=(",", ":")),
        )
        for position, item in enumerate(items)
    ]
    batch = CallBatch(run, context, calls, max_parallel, parent_tool_call_id=context.tool_call_id)
    endings = await batch.run()
    result = json.dumps([_item(each) for each in endings], ensure_ascii=False)
    if endings and not any(each.status is Status.SUCCEEDED for each in endings):
        raise ToolError(f"Every item failed: {result}")
    return result


def _item(ending: Ending) -> dict[str, str | None]:
    if ending.status is Status.SUCCEEDED:
        return {"status": ending.status.value, "result": ending.result}
    message = ending.error.message if ending.error else None
    return {"status": ending.status.value, "reason": ending.reason, "error": message}
