"""Chat: send a user's message to the application's agents and stream the run."""

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
class StreamedEvent:
    """The part of an event that the stream contains."""

    type: str
    data: dict[str, Any]
    answer: ChatAnswer | None
    """The agents' answer; only the last event has one."""


class ChatStream:
    """A run's events as they are recorded, until the reader leaves."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[StreamedEvent] = asyncio.Queue()
        self._is_left = False

    def observe(self, events: Sequence[Event]) -> None:
        """Queue events for the reader."""
        for each in events if not self._is_left else ():
            # Payloads are left out: a slow reader would otherwise keep them in memory.
            self._events.put_nowait(StreamedEvent(each.type, shown(each), _answer(each)))

    async def read(self) -> AsyncGenerator[StreamedEvent]:
        """Yield the events until the run ends."""
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
    """A run that a message started."""

    run: Run
    stream: ChatStream


async def _started(chat_request: ChatRequest, launcher: Launcher) -> ChatRun:
    """Start the run. If it is rejected, the response has the status of the error, not a stream."""
    stream = ChatStream()
    with identity(token_id=chat_request.user_id):
        run = await launcher.start(
            chat_request.message,
            agent=chat_request.agent,
            session_id=chat_request.session_id,
            observe=stream.observe,
        )
    return ChatRun(run, stream)


@router.post("", response_class=EventSourceResponse)
async def chat(started: Annotated[ChatRun, Depends(_started)]) -> AsyncIterator[ServerSentEvent]:
    """Send a message to the agents.

    Streams `run` (the run that the message started), one event for each moment of the run, named
    by its type in `docs/reference/protocol.md`, and finally `answer`. If the client leaves the
    stream, the run continues.
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
    """Return the answer if the event ends the run, else None."""
    if isinstance(event, PlanFinished) and event.plan_id == event.root_plan_id:
        return ChatAnswer.of(event)
    return None
