"""Agents of pydantic-ai on scripted models: those of the scenario, and any others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from tests.adapters.recording import RecordedStore, recording
from tests.adapters.scenario import (
    MODEL,
    PLANNER,
    RESEARCHER,
    Scenario,
    SearchFailed,
    Turn,
)
from tracer.adapters import pydantic_ai as adapter
from tracer.client import Tracing

Recorded = tuple[Tracing, RecordedStore]

VERSION = f"verified with pydantic-ai 2.68, run with {pydantic_ai.__version__}"


@contextmanager
def installed(folder: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Recorded]:
    """Record all agents inside; nothing of it may fail unseen."""
    with recording(folder) as (tracing, store):
        uninstall = adapter.install(tracing)
        try:
            yield tracing, store
        finally:
            uninstall()
    assert "adapter_failed" not in {each.message.split()[0] for each in caplog.get_records("call")}


class _Streamed(FunctionModel):
    """Streams the whole answers that it gives otherwise, with their usage."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        yield CompletedStreamedResponse(
            await self.request(messages, model_settings, model_request_parameters),
            model_request_parameters=model_request_parameters,
            replay_events=True,
        )


def planner_of(scenarios: Sequence[Scenario]) -> Agent[None, str]:
    """Return a planner that knows these scenarios, and hands to a researcher."""

    def turn(messages: list[ModelMessage]) -> Turn:
        asked, answered = _place(messages)
        [wanted] = [each for each in scenarios if asked in each.turns]
        return wanted.turn(asked, answered)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return _response(turn(messages))

    model = _Streamed(answer, model_name=MODEL)
    planner, researcher = Agent(model, name=PLANNER), Agent(model, name=RESEARCHER)

    @planner.tool_plain
    async def weather(city: str) -> str:
        return scenarios[0].weather(city)

    @planner.tool_plain
    async def ask_researcher(question: str) -> str:
        return (await researcher.run(question)).output

    @researcher.tool_plain
    async def search(q: str) -> str:
        [wanted] = [each for each in scenarios if each.prompt[:7] == q[:7]]
        await asyncio.sleep(wanted.seconds(q))
        try:
            return wanted.search(q)
        except SearchFailed as error:
            raise ModelRetry(str(error)) from error

    return planner


def scripted(*answers: ModelResponse | str | Sequence[ToolCallPart]) -> FunctionModel:
    """Return a model that gives these answers, the same to each conversation."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        given = answers[sum(isinstance(each, ModelResponse) for each in messages)]
        if isinstance(given, ModelResponse):
            return given
        return ModelResponse([TextPart(given)] if isinstance(given, str) else list(given))

    return FunctionModel(answer, model_name=MODEL)


def calls(*named: tuple[str, str, str]) -> list[ToolCallPart]:
    """Return tool calls: each a name, arguments as text, and the provider's id."""
    return [ToolCallPart(*each) for each in named]


def run_sync(agent: Agent[None, str], prompt: str) -> str:
    """Run an agent in this thread, which has no event loop."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return agent.run_sync(prompt).output
    finally:
        # pydantic-ai would make one, and leave it open.
        asyncio.set_event_loop(None)
        loop.close()


def _place(messages: Iterable[ModelMessage]) -> tuple[str, int]:
    """Return what a conversation began with, and how often the model has answered in it."""
    listed = list(messages)
    asked = listed[0].parts[-1]
    assert isinstance(asked, UserPromptPart)
    return str(asked.content), sum(isinstance(m, ModelResponse) for m in listed)


def _response(turn: Turn) -> ModelResponse:
    parts = [ToolCallPart(c.name, c.arguments_text, c.provider_call_id) for c in turn.calls]
    return ModelResponse(
        parts=[*parts, *([TextPart(turn.text)] if turn.text is not None else [])],
        usage=RequestUsage(
            input_tokens=turn.input_tokens,
            cache_read_tokens=turn.cached_input_tokens,
            output_tokens=turn.output_tokens,
        ),
    )
