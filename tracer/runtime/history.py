"""The history of a session: the messages and answers of its earlier runs.

It is read from the records of those runs, so it is masked, deleted and exported with them. The
agent that answers a user's message receives it. Steps of a given plan and sub-plans receive none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from tracer.errors import StoreUnavailable, ToolUnavailable
from tracer.runtime.application import AgentRun
from tracer.runtime.chat_model import Message
from tracer.store import Exchange
from tracer.text import unescape


class ExchangeReader(Protocol):
    """The part of a `TraceReader` that a history is read from."""

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the request and the answer of ended runs; see `TraceReader.list_exchanges`."""


async def join_session(
    scope: AgentRun, reader: ExchangeReader, *, reads: bool = True
) -> list[Message]:
    """Add a run to its session, and return the session's earlier messages, oldest first.

    The result has at most `Application.history_characters` characters. The oldest exchanges are
    left out first, each as a whole.

    Args:
        scope: The run, which has a session.
        reader: Reads the earlier runs.
        reads: False to add the run only.

    Raises:
        ToolError: The history cannot be read, or the caller cannot be identified.
    """
    most = scope.application.history_characters
    try:
        earlier = await scope.join_conversation()
        return _newest(await reader.list_exchanges(earlier), most) if reads else []
    except StoreUnavailable as error:
        raise ToolUnavailable(f"The session's history can't be read. {error}") from error


def _newest(exchanges: Sequence[Exchange], most: int) -> list[Message]:
    """Return the messages of the newest exchanges that have at most `most` characters."""
    messages: list[Message] = []
    for exchange in reversed(exchanges):
        said = [Message("user", unescape(exchange.request), is_history=True)]
        if exchange.answer:
            said.append(Message("assistant", unescape(exchange.answer), is_history=True))
        most -= sum(len(each.content) for each in said)
        if most < 0:
            break
        messages = said + messages
    return messages
