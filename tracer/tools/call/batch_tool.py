"""A tool that does for many items what another does for one."""

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
"""More items in one call are refused."""


def batch_tool(
    tool: Tool, *, name: str | None = None, description: str | None = None, max_parallel: int = 8
) -> Tool:
    """Return a tool that takes a list of items, each the arguments of one call of `tool`.

    Every item is a tool call of its own in the records, under the batch call; a sub-plan hangs
    under its own item. The batch answers with what became of each item, in order. It fails only
    where every item failed.

    Args:
        tool: The tool for one item.
        name: What models call the batch; unless given, the tool's name with `_each` after it.
        description: What it does, for the model.
        max_parallel: How many items run at once.
    """
    item_schema = {**tool.parameters}
    # References point into the document's top, wherever the schema stands.
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
        # What an item has to be is checked item by item: one that does not fit is a failed call
        # of its own, and its neighbours go on.
        "properties": {"items": {"type": "array", "maxItems": MAX_ITEMS}},
        "required": ["items"],
        "additionalProperties": False,
    }
)


async def _run_batch(tool: Tool, items: list[Any], context: ToolContext, max_parallel: int) -> str:
    if context.toolcallId is None:
        raise MissingToolCallId("The tool context carries no toolcallId: items need their batch.")
    scope = run_of(context)
    calls = [
        Call(
            tool_call_id=scope.new_id(),
            position=position,
            tool=tool,
            name=tool.name,
            arguments=json.dumps(item, ensure_ascii=False, separators=(",", ":")),
        )
        for position, item in enumerate(items)
    ]
    batch = CallBatch(scope, context, calls, max_parallel, parent_tool_call_id=context.toolcallId)
    endings = await batch.run()
    answer = json.dumps([_item(each) for each in endings], ensure_ascii=False)
    if endings and not any(each.status is Status.SUCCEEDED for each in endings):
        raise ToolError(f"Every item failed: {answer}")
    return answer


def _item(ending: Ending) -> dict[str, str | None]:
    if ending.status is Status.SUCCEEDED:
        return {"status": ending.status.value, "result": ending.result}
    said = ending.error.message if ending.error else None
    return {"status": ending.status.value, "reason": ending.reason, "error": said}
