"""The history of a session: the messages and answers of its earlier runs.

The history is read from the records of those runs. So masking, deletion and export of the records
also apply to the history. Only the agent that answers a user's message receives the history; steps
of predefined plans and of sub-plans do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from tracer.errors import StoreUnavailable, ToolUnavailable
from tracer.runtime.application import ApplicationRun
from tracer.runtime.chat_model import Message
from tracer.store import Exchange
from tracer.text import unescape


class ExchangeReader(Protocol):
    """The part of a `TraceReader` that reads a history."""

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the request and the answer of the given runs, if they have finished."""


async def join_session(
    run: ApplicationRun, reader: ExchangeReader, *, reads: bool = True
) -> list[Message]:
    """Add a run to its session, and return the session's earlier messages, oldest first.

    The result has at most `Application.history_characters` characters. The oldest exchanges are
    omitted first, each as a whole.

    Args:
        run: The run, which has a session.
        reader: Reads the earlier runs.
        reads: Whether to read the history. If false, the run is added and no messages are returned.

    Raises:
        ToolError: The history cannot be read, or the caller cannot be identified.
    """
    limit = run.application.history_characters
    try:
        earlier_runs = await run.join_conversation()
        return _newest(await reader.list_exchanges(earlier_runs), limit) if reads else []
    except StoreUnavailable as error:
        raise ToolUnavailable(f"The session's history cannot be read. {error}") from error


def _newest(exchanges: Sequence[Exchange], limit: int) -> list[Message]:
    """Return the messages of the newest exchanges that together fit in `limit` characters."""
    messages: list[Message] = []
    for exchange in reversed(exchanges):
        pair = [Message("user", unescape(exchange.request), is_history=True)]
        if exchange.answer:
            pair.append(Message("assistant", unescape(exchange.answer), is_history=True))
        limit -= sum(len(each.content) for each in pair)
        if limit < 0:
            break
        messages = pair + messages
    return messages
