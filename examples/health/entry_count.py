"""Count the entries that a conversation has added: a hook, and the session state.

`count_entry` is a hook of each tool that records. After the tool has succeeded, it increments
`entries_recorded` in the session state. Parallel calls are all counted, rejected ones are not. The
coordinator's instructions in `agents.yaml` show the number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tracer import RunContext

ENTRIES_RECORDED = "entries_recorded"

STATE_AT_FIRST = {ENTRIES_RECORDED: 0}
"""The session state at the start of a conversation."""


async def count_entry(
    next: Callable[[dict[str, Any]], Awaitable[Any]],
    arguments: dict[str, Any],
    run_context: RunContext,
) -> Any:
    """Run a tool that records, and count its entry.

    Args:
        next: Runs the tool.
        arguments: The model's arguments.
        run_context: Contains the session state.
    """
    entry = await next(arguments)
    run_context.session_state.increment(ENTRIES_RECORDED)
    return entry
