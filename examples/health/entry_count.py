"""How many entries a conversation has added: a hook that counts, and the session's state.

`count_entry` stands around each tool that records. It adds to `entries_recorded` in the state of
the conversation once the entry is there, so that calls side by side lose none and a refused one
counts for nothing. The coordinator's instructions in `agents.yaml` show the number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tracer import RunContext

ENTRIES_RECORDED = "entries_recorded"

STATE_AT_FIRST = {ENTRIES_RECORDED: 0}
"""What a conversation begins with."""


async def count_entry(
    next: Callable[[dict[str, Any]], Awaitable[Any]],
    arguments: dict[str, Any],
    run_context: RunContext,
) -> Any:
    """Let a tool record, and count what it recorded.

    Args:
        next: Carries out the call.
        arguments: The model's.
        run_context: Has the conversation's state.
    """
    entry = await next(arguments)
    run_context.session_state.increment(ENTRIES_RECORDED)
    return entry
