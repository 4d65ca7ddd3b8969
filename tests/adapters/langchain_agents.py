"""Agents of LangChain's `create_agent`, on models that say what they are told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool

from tests.adapters.installed import installed
from tests.adapters.recording import RecordedStore, recording
from tests.adapters.scenario import MODEL, PLANNER, RESEARCHER, Scenario, Turn
from tracer.adapters.langchain import runs as langchain_runs

VERSIONS = ", ".join(
    f"{name} {version(name)}" for name in ("langchain", "langchain-core", "langgraph")
)
"""What the tests ran with, for their failures."""

PLENTY_SECONDS = 200.0


def recorded(tmp_path: Path) -> AbstractContextManager[RecordedStore]:
    """Give the store that every run of LangChain is recorded to."""
    return installed(langchain_runs.install, tmp_path)


@contextmanager
def only_to(tmp_path: Path) -> Iterator[tuple[langchain_runs.RecordingHandler, RecordedStore]]:
    """Give a handler for some runs, and its store; at the end it has nothing left of them."""
    with recording(tmp_path) as (tracing, store):
        recorder = langchain_runs.RecordingHandler(tracing)
        yield recorder, store
        assert recorder.under_way == 0


@tool
async def echo(text: str) -> str:
    """Says it."""
    return f"said {text}"


async def cancelled(running: Any, has_begun: asyncio.Event) -> None:
    """Cancel what runs once it has begun."""
    task = asyncio.ensure_future(running)
    async with asyncio.timeout(PLENTY_SECONDS):
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # What is told of the task's end, the event loop tells in its next round.
    await asyncio.sleep(0)


class Says(BaseChatModel):
    """A model that answers what a function makes of the messages."""

    answer: Callable[[list[BaseMessage]], AIMessage]

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Runnable[Any, AIMessage]:
        return self.bind(**options) if options else self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])

    @property
    def _llm_type(self) -> str:
        return "says"

    def _get_ls_params(self, stop: list[str] | None = None, **options: Any) -> Any:
        return {"ls_model_name": MODEL, "ls_model_type": "chat"}


class Streams(Says):
    """Says it piece by piece."""

    def _pieces(self, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        said = self.answer(messages)
        for letter in said.text:
            yield ChatGenerationChunk(message=AIMessageChunk(content=letter))
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=[
                    tool_call_chunk(
                        name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index
                    )
                    for index, call in enumerate(said.tool_calls)
                ],
                usage_metadata=said.usage_metadata,
            )
        )

    def _stream(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> Iterator[Any]:
        yield from self._pieces(messages)

    async def _astream(
        self, messages: list[BaseMessage], *rest: Any, **options: Any
    ) -> AsyncIterator[Any]:
        for piece in self._pieces(messages):
            yield piece


def chooses(*calls: tuple[str, dict[str, Any], str | None]) -> AIMessage:
    """Return an answer that chooses tools: their names, arguments and the provider's ids."""
    return AIMessage(
        "",
        tool_calls=[
            ToolCall(name=name, args=arguments, id=call_id, type="tool_call")
            for name, arguments, call_id in calls
        ],
    )


def in_order(*answers: AIMessage | str, model: type[Says] = Says) -> Says:
    """Return a model that gives each answer once, by how often it has answered in the messages."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        said = answers[sum(isinstance(each, AIMessage) for each in messages)]
        return AIMessage(said) if isinstance(said, str) else said.model_copy(deep=True)

    return model(answer=answer)


def new_agent(model: BaseChatModel, tools: Sequence[Any], **options: Any) -> Any:
    """Return an agent that takes what any graph does."""
    return create_agent(model, tools, **options)


def ask(text: str) -> dict[str, Any]:
    """Return what a graph of messages is given."""
    return {"messages": [HumanMessage(text)]}


class ErrorsAreAnswers(AgentMiddleware[Any, Any, Any]):
    """Tells the model of what a tool raised."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except Exception as error:
            return self._answer(request, error)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        try:
            return await handler(request)
        except Exception as error:
            return self._answer(request, error)

    def _answer(self, request: Any, error: Exception) -> ToolMessage:
        call = request.tool_call
        return ToolMessage(str(error), name=call["name"], tool_call_id=call["id"], status="error")


def scenario_agent(
    wanted: Sequence[Scenario], model: type[Says] = Says, is_async: bool = True
) -> Any:
    """Return the planner of the scenario, for the runs that are wanted.

    Args:
        wanted: One for each run.
        model: The class of the models.
        is_async: Whether the tools are coroutines.
    """

    def of(text: str) -> Scenario:
        return next(each for each in wanted if repr(text)[1:-1] in repr(each))

    def said(turn: Turn) -> AIMessage:
        calls = [(call.name, call.arguments, call.provider_call_id) for call in turn.calls]
        answer = chooses(*calls) if calls else AIMessage(turn.text or "")
        answer.usage_metadata = UsageMetadata(
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            total_tokens=turn.input_tokens + turn.output_tokens,
            input_token_details={"cache_read": turn.cached_input_tokens},
        )
        return answer

    def answer(messages: list[BaseMessage]) -> AIMessage:
        first = next(each.text for each in messages if isinstance(each, HumanMessage))
        answered = sum(isinstance(each, AIMessage) for each in messages)
        return said(of(first).turn(first, answered))

    def weather(city: str) -> str:
        """The weather."""
        return of(city).weather(city)

    def search(q: str) -> str:
        """Searches."""
        time.sleep(of(q).seconds(q))
        return of(q).search(q)

    async def search_async(q: str) -> str:
        """Searches."""
        await asyncio.sleep(of(q).seconds(q))
        return of(q).search(q)

    def ask_researcher(question: str) -> str:
        """Asks the researcher."""
        return str(researcher.invoke(ask(question))["messages"][-1].text)

    async def ask_researcher_async(question: str) -> str:
        """Asks the researcher."""
        return str((await researcher.ainvoke(ask(question)))["messages"][-1].text)

    middleware = [ErrorsAreAnswers()]
    searching = tool("search")(search_async if is_async else search)
    asking = tool("ask_researcher")(ask_researcher_async if is_async else ask_researcher)
    researcher = new_agent(
        model(answer=answer), [searching], name=RESEARCHER, middleware=middleware
    )
    return new_agent(
        model(answer=answer), [tool(weather), asking], name=PLANNER, middleware=middleware
    )
