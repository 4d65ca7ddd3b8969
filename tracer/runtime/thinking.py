"""One round's thinking: the model is asked, and answers; recorded before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypedDict
from uuid import UUID

from tracer.context import ToolContext
from tracer.errors import BudgetExhausted, ModelError, UnknownTool
from tracer.events import ChosenToolCall, ThoughtRecorded, ThoughtStarted
from tracer.logs import get_logger
from tracer.prices import token_count, usd
from tracer.runtime.chat_model import (
    ChatModel,
    ChosenCall,
    Generation,
    Message,
    ToolSpec,
    messages_json,
)
from tracer.status import Reason, Status
from tracer.tools.call_batch import Call, start_at_once
from tracer.tools.definition import Tool
from tracer.tools.ending import Ending, failed, timed_out
from tracer.tools.registry import find_tool
from tracer.tools.run_scope import RunScope
from tracer.tools.waiting import Waited, has_passed, wait_for_end

log = get_logger(__name__)

CHARACTERS_PER_TOKEN = 4
"""How many characters of a conversation are taken for a token before the model has counted."""


@dataclass(frozen=True)
class Question:
    """What a model is asked, and what it may choose from."""

    model: ChatModel
    messages: Sequence[Message]
    tools: Mapping[str, Tool]
    """All of the agent's tools."""
    offered: Sequence[ToolSpec]
    """Those that the model is shown."""
    max_parallel: int
    """How many of the chosen calls start at once."""


@dataclass(frozen=True)
class Thought:
    """A model's answer, with the calls that it chose."""

    answer: Message
    calls: list[Call]
    event: ThoughtRecorded
    """Records the answer and the calls. It is not written yet: who writes it has to see to it
    that the calls end."""


class _Links(TypedDict):
    plan_id: UUID
    step_id: UUID
    think_act_id: UUID


async def think(
    scope: RunScope, place: ToolContext, position: int, question: Question
) -> Thought | Ending:
    """Ask a model, and return its thought, or how asking it ended without one.

    Args:
        scope: The run.
        place: The round's place; its `think_act_id` is set.
        position: The round's number within the step.
        question: What to ask.

    Raises:
        asyncio.CancelledError: The run was cancelled; the think-act has its ending.
    """
    assert place.think_act_id is not None
    links: _Links = {
        "plan_id": place.plan_id,
        "step_id": place.step_id,
        "think_act_id": place.think_act_id,
    }
    ending: Ending | None = None
    messages = messages_json(question.messages)
    try:
        await scope.record(
            ThoughtStarted(
                **scope.stamp(),
                **links,
                position=position,
                requested_model=question.model.name,
                messages=messages,
            )
        )
        budget = scope.budget_of(place.plan_id)
        async with budget.reserved_tokens(len(messages) // CHARACTERS_PER_TOKEN) as use:
            answer = await _ask(scope, question, place.deadline)
            if isinstance(answer, Generation):
                use.tokens = _tokens(answer) or use.tokens
        if isinstance(answer, Generation):
            thought = _thought(scope, links, question, answer)
            ending = Ending(Status.SUCCEEDED)
            return thought
        ending = answer
    except BudgetExhausted as error:
        ending = failed(error)
    except Exception as error:
        log.exception("thinking_broke")
        ending = failed(error, Reason.MODEL_ERROR)
    finally:
        ending = ending or scope.cancelled()
        if ending.status is not Status.SUCCEEDED:
            await scope.record(ThoughtRecorded(**scope.stamp(), **links, **ending.fields))
    if ending.status is Status.CANCELLED:
        raise asyncio.CancelledError
    return ending


async def _ask(scope: RunScope, question: Question, deadline: float | None) -> Generation | Ending:
    """Return the model's answer, or how asking it ended without one."""
    if has_passed(deadline):
        return timed_out("The time was over before the model could be asked.")
    work = asyncio.create_task(question.model.complete(question.messages, question.offered))
    match await wait_for_end(work, deadline):
        case Waited.TIMED_OUT:
            return timed_out("The time was over before the model answered.")
        case Waited.CANCELLED:
            return scope.cancelled()
    if work.cancelled():
        return failed(ModelError("The model cancelled itself."), Reason.MODEL_ERROR)
    error = work.exception()
    if error is not None:
        return failed(error, Reason.MODEL_ERROR)
    answer: object = work.result()
    if not isinstance(answer, Generation) or not isinstance(answer.text, str):
        return failed(ModelError("The model's adapter gave no generation."), Reason.MODEL_ERROR)
    return answer


def _thought(scope: RunScope, links: _Links, question: Question, generation: Generation) -> Thought:
    names = [each.name for each in question.offered]
    calls = []
    for position, chosen in enumerate(generation.tool_calls):
        calls.append(
            Call(
                tool_call_id=scope.ids(),
                position=position,
                tool=_tool(question.tools, chosen, names),
                name=chosen.name,
                arguments=chosen.arguments,
                provider_call_id=chosen.provider_call_id,
            )
        )
    start_at_once(calls, scope, question.max_parallel)
    event = ThoughtRecorded(
        **scope.stamp(),
        **links,
        **_bookkeeping(generation),
        status=Status.SUCCEEDED,
        thought=generation.text,
        tool_calls=tuple(
            ChosenToolCall(
                tool_call_id=each.tool_call_id,
                name=each.name,
                arguments=each.recorded_arguments,
                provider_call_id=each.provider_call_id,
                tool_type=each.tool_type,
                status=Status.RUNNING if each.has_started else Status.PENDING,
            )
            for each in calls
        ),
    )
    # The next rounds' messages are recorded too, so they must not hold what the model forged.
    chosen_calls = tuple(
        replace(chosen, arguments=call.recorded_arguments)
        for chosen, call in zip(generation.tool_calls, calls, strict=True)
    )
    return Thought(Message("assistant", generation.text, chosen_calls), calls, event)


def _tokens(answer: Generation) -> int:
    return (token_count(answer.input_tokens) or 0) + (token_count(answer.output_tokens) or 0)


class _Bookkeeping(TypedDict):
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None


def _bookkeeping(generation: Generation) -> _Bookkeeping:
    """Return what an answer says of itself, without what cannot be recorded: the answer counts."""
    model: object = generation.model
    return {
        "model": model if isinstance(model, str) else None,
        "input_tokens": token_count(generation.input_tokens),
        "output_tokens": token_count(generation.output_tokens),
        "cost_usd": usd(generation.cost_usd),
    }


def _tool(
    tools: Mapping[str, Tool], chosen: ChosenCall, offered: Sequence[str]
) -> Tool | UnknownTool:
    try:
        return find_tool(tools, chosen.name, offered)
    except UnknownTool as error:
        return error
