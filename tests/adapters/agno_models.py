"""A model of Agno's that answers what a test says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agno.agent import Agent
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse


@dataclass(frozen=True)
class Answer:
    """What the model answers: text, or tool calls as name, arguments and the provider's id."""

    text: str | None = None
    calls: Sequence[tuple[str, Any, str | None]] = ()
    tokens: tuple[int, int] = (0, 0)
    error: Exception | None = None


@dataclass
class AnsweringModel(Model):
    """Asks a function for its next answer."""

    id: str = "gpt-5-mini"
    answer: Callable[[list[Message]], Answer] = field(default=lambda messages: Answer("done"))

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        answer = self.answer(kwargs["messages"])
        if answer.error is not None:
            raise answer.error
        calls = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            | ({} if call_id is None else {"id": call_id})
            for name, given, call_id in answer.calls
        ]
        return ModelResponse(
            role="assistant",
            content=answer.text,
            tool_calls=calls,
            response_usage=MessageMetrics(
                input_tokens=answer.tokens[0],
                output_tokens=answer.tokens[1],
                total_tokens=sum(answer.tokens),
            ),
        )

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.invoke(*args, **kwargs)

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        yield self.invoke(*args, **kwargs)

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        yield self.invoke(*args, **kwargs)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


def answers(*each: Answer) -> AnsweringModel:
    """Return a model that gives these answers one after the other."""
    left = iter(each)
    return AnsweringModel(answer=lambda messages: next(left))


DONE = Answer("done")


def agent_of(*each: Answer, **options: Any) -> Agent:
    return Agent(**{"name": "planner", "model": answers(*each), **options})


def calling(*each: tuple[str, Any, str | None]) -> Answer:
    return Answer(calls=each)


def divide(a: int, b: int) -> float:
    return a / b
