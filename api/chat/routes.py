"""Chat: a user's message goes to the application's agents, and what they do is streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.chat.schemas import ChatAnswer, ChatRequest, shown
from api.dependencies import Launcher
from api.schemas import RunSchema
from tracer.context import identity
from tracer.records.events import Event, PlanFinished
from tracer.records.record_classes import Run

router = APIRouter(prefix="/api/v1/chat", tags=["chat"])


@dataclass(frozen=True)
class Shown:
    """What the stream carries of an event."""

    type: str
    data: dict[str, Any]
    answer: ChatAnswer | None
    """The answer, with the last one."""


class ChatStream:
    """A run's events as they are recorded, until nobody reads them any more."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Shown] = asyncio.Queue()
        self._is_left = False

    def observe(self, events: Sequence[Event]) -> None:
        """Take events in."""
        for each in events if not self._is_left else ():
            # Without the payloads, which a slow reader would have us keep.
            self._events.put_nowait(Shown(each.type, shown(each), _answer(each)))

    async def read(self) -> AsyncGenerator[Shown]:
        """Yield the events up to the end of the run."""
        try:
            while True:
                event = await self._events.get()
                yield event
                if event.answer is not None:
                    return
        finally:
            self._is_left = True


@dataclass
class ChatRun:
    """A run that a message has started."""

    run: Run
    stream: ChatStream


async def _started(asked: ChatRequest, launcher: Launcher) -> ChatRun:
    """Start the run: before the stream begins, so that a refusal is an answer of its own."""
    stream = ChatStream()
    with identity(token_id=asked.user_id):
        run = await launcher.start(
            asked.message, agent=asked.agent, session_id=asked.session_id, observe=stream.observe
        )
    return ChatRun(run, stream)


@router.post("", response_class=EventSourceResponse)
async def chat(started: Annotated[ChatRun, Depends(_started)]) -> AsyncIterator[ServerSentEvent]:
    """Send a message to the agents.

    Streams `run` (the run that it started), one event for each moment of the run, named by its type
    as in `docs/reference/protocol.md`, and at the end `answer`. Closing the stream does not stop
    the run.
    """
    run = RunSchema.model_validate(started.run)
    yield ServerSentEvent(event="run", data=run.model_dump(mode="json", by_alias=True))
    async with aclosing(started.stream.read()) as events:
        async for event in events:
            yield ServerSentEvent(event=event.type, data=event.data)
            if event.answer is not None:
                answer = event.answer.model_dump(mode="json", by_alias=True, exclude_none=True)
                yield ServerSentEvent(event="answer", data=answer)


def _answer(event: Event) -> ChatAnswer | None:
    """Return the answer, where an event ends the run."""
    if isinstance(event, PlanFinished) and event.plan_id == event.root_plan_id:
        return ChatAnswer.of(event)
    return None
