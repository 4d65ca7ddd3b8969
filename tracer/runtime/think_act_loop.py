"""The think-act loop: an agent carries out one step, round by round.

In each round the model is asked, and chooses tools or answers. It is recorded before and after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict
from uuid import UUID

from tracer.context import ToolContext
from tracer.errors import BudgetExhausted, ModelError, PlanningError, ToolError, TracerError
from tracer.logs import get_logger, lineage_bound
from tracer.records.events import (
    ChosenToolCall,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
)
from tracer.records.prices import token_count, usd
from tracer.records.status import Reason, Status
from tracer.runtime.agent import Agent, introduction
from tracer.runtime.application import AgentRun
from tracer.runtime.chat_model import ChatModel, Generation, Message, ToolSpec, messages_json
from tracer.tasks import Waited, has_passed, seconds_left, wait_for_end
from tracer.tools.call.active_run import RunScope
from tracer.tools.call.batch import Call, CallBatch, start_at_once
from tracer.tools.definition.results import Ending, failed, succeeded, timed_out
from tracer.tools.definition.tool import Tool
from tracer.tools.registry import unknown_tool

log = get_logger(__name__)

CHARACTERS_PER_TOKEN = 4
"""The estimated number of characters per token, until the model reports its count."""


class RoundLimitReached(TracerError):
    """The agent used up its rounds without a final answer."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an agent has to do in one step."""

    agent: Agent
    position: int
    """The step's place in its plan."""
    request: str
    """What the step asks for."""
    known: str = ""
    """What the agent should know besides, such as what earlier steps came to."""
    history: Sequence[Message] = ()
    """The earlier messages of the session, for the model; before `request`."""
    check: Callable[[str], object] | None = None
    """Raises `PlanningError` if it rejects an answer; the agent is then asked again."""


async def run_step(scope: AgentRun, place: ToolContext, task: Task) -> Ending:
    """Let an agent carry out a step, and return how it ended.

    Args:
        scope: The run.
        place: The step's place.
        task: What to do.

    Raises:
        asyncio.CancelledError: The run was cancelled; the step has its ending.
    """
    ending: Ending | None = None
    with lineage_bound(step_id=place.step_id):
        try:
            await scope.record(
                StepStarted(
                    **scope.stamp(),
                    plan_id=place.plan_id,
                    step_id=place.step_id,
                    position=task.position,
                    agent_name=task.agent.name,
                    request=task.request,
                )
            )
            ending = await _think_and_act(scope, place, task)
        except Exception as error:
            log.exception("step_broke")
            ending = failed(error, Reason.INTERNAL_ERROR)
        finally:
            ending = ending or scope.cancelled()
            await scope.record(
                StepFinished(
                    **scope.stamp(),
                    **ending.fields,
                    plan_id=place.plan_id,
                    step_id=place.step_id,
                    result=ending.result,
                )
            )
    return ending


async def _think_and_act(scope: AgentRun, place: ToolContext, task: Task) -> Ending:
    agent = task.agent
    place = replace(place, agent=agent)
    may_open_plans = place.depth < scope.application.max_depth
    instructions = agent.all_instructions
    try:
        if agent.resolve_in_context:
            async with asyncio.timeout(seconds_left(place.deadline)):
                instructions = await scope.instructions.filled(instructions)
    except TimeoutError:
        return timed_out("The time was over before the agent's instructions were filled in.")
    except ToolError as error:
        return failed(error)
    messages = [
        Message("system", f"{introduction(agent.name)}\n\n{instructions}".strip()),
        *task.history,
        Message("user", task.request),
    ]
    if task.known:
        messages.append(Message("user", task.known))
    refusal: PlanningError | None = None
    for position in range(agent.max_rounds):
        round_place = replace(place, think_act_id=scope.new_id())
        tools = agent.tools_now(scope.application.registry)
        question = _Question(
            model=scope.application.model_of(agent),
            messages=tuple(messages),
            tools=tools,
            offered=[
                ToolSpec(each.name, each.description, each.parameters)
                for each in tools.values()
                if may_open_plans or not each.opens_plans
            ],
            max_parallel=agent.max_parallel,
        )
        thought = await _think(scope, round_place, position, question)
        if isinstance(thought, Ending):
            return thought
        messages.append(thought.answer)
        if thought.calls:
            batch = CallBatch(scope, round_place, thought.calls, agent.max_parallel)
            endings = await batch.run(thought.event)
            messages += [Message("tool", each.for_model()) for each in endings]
        else:
            await scope.record(thought.event)
            try:
                if task.check is not None:
                    task.check(thought.answer.content)
            except PlanningError as error:
                refusal = error
                messages.append(Message("user", str(error)))
            else:
                return succeeded(thought.answer.content)
        if has_passed(place.deadline):
            return timed_out("The time was over before the agent had its final answer.")
    if refusal is not None:
        return failed(refusal, Reason.MODEL_ERROR)
    return failed(
        RoundLimitReached(f"The agent had no final answer after {agent.max_rounds} rounds."),
        Reason.ROUND_LIMIT,
    )


@dataclass(frozen=True)
class _Question:
    """A question to a model, with the tools that it may choose."""

    model: ChatModel
    messages: Sequence[Message]
    tools: Mapping[str, Tool]
    """All of the agent's tools."""
    offered: Sequence[ToolSpec]
    """Those that the model is shown."""
    max_parallel: int
    """How many of the chosen calls start at once."""


@dataclass(frozen=True)
class _Thought:
    """A model's answer, with the calls that it chose."""

    answer: Message
    calls: list[Call]
    event: ThoughtRecorded
    """Records the answer and the calls. It is not written yet. The code that writes it must end
    the calls."""


class _Links(TypedDict):
    plan_id: UUID
    step_id: UUID
    think_act_id: UUID


async def _think(
    scope: RunScope, place: ToolContext, position: int, question: _Question
) -> _Thought | Ending:
    """Ask a model, and return its thought, or how asking it ended without one.

    Args:
        scope: The run.
        place: The round's place; its `think_act_id` is set.
        position: The round's number within the step.
        question: The question.

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
        budget = scope.budgets[place.plan_id]
        async with budget.reserved_tokens(len(messages) // CHARACTERS_PER_TOKEN) as use:
            answer = await _ask(scope, question, place.deadline)
            if isinstance(answer, Generation):
                counts = (token_count(answer.input_tokens), token_count(answer.output_tokens))
                use.tokens = sum(each or 0 for each in counts) or use.tokens
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


async def _ask(scope: RunScope, question: _Question, deadline: float | None) -> Generation | Ending:
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


def _thought(
    scope: RunScope, links: _Links, question: _Question, generation: Generation
) -> _Thought:
    names = [each.name for each in question.offered]
    calls = []
    for position, chosen in enumerate(generation.tool_calls):
        calls.append(
            Call(
                tool_call_id=scope.new_id(),
                position=position,
                tool=question.tools.get(chosen.name) or unknown_tool(chosen.name, names),
                name=chosen.name,
                arguments=chosen.arguments,
                provider_call_id=chosen.provider_call_id,
            )
        )
    start_at_once(calls, scope, question.max_parallel)
    model: object = generation.model
    # Values that cannot be recorded are left out, so that the answer is accepted.
    event = ThoughtRecorded(
        **scope.stamp(),
        **links,
        status=Status.SUCCEEDED,
        model=model if isinstance(model, str) else None,
        input_tokens=token_count(generation.input_tokens),
        output_tokens=token_count(generation.output_tokens),
        cost_usd=usd(generation.cost_usd),
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
    return _Thought(Message("assistant", generation.text, chosen_calls), calls, event)
