"""Places in the lineage for tests that call tools outside a run."""

from uuid import UUID

from tracer.context import ToolContext
from tracer.records import sequential_ids
from tracer.records.results import Ending
from tracer.tools import Tool
from tracer.tools.call import CallNotes, call_tool


def some_context(deadline: float | None = None) -> ToolContext:
    ids = sequential_ids()
    root_plan_id: UUID = ids()
    return ToolContext(
        tool_call_id=ids(),
        root_plan_id=root_plan_id,
        plan_id=root_plan_id,
        step_id=ids(),
        deadline=deadline,
    )


class Caller:
    """Calls a tool, and notes its retries and what went on after it was given up."""

    def __init__(self) -> None:
        self.retries: list[int] = []
        self.late: list[object] = []

    async def call(
        self, tool: Tool, arguments: str | None = "{}", context: ToolContext | None = None
    ) -> Ending:
        async def before_attempt() -> None:
            self.retries.append(self.notes.attempt)

        self.notes = CallNotes()
        return await call_tool(
            tool,
            arguments,
            context or some_context(),
            self.notes,
            before_attempt=before_attempt,
            on_late=self.late.append,
        )
