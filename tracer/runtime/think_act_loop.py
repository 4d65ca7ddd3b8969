"""The think-act loop: an agent carries out one step in rounds.

In each round, the loop sends a request to the model, which requests tool calls or answers. Each
round is recorded before it starts and when it ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypedDict
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
from tracer.runtime.application import ApplicationRun
from tracer.runtime.chat_model import ChatModel, Generation, Message, ToolSpec, messages_json
from tracer.tasks import Waited, has_passed, seconds_left, wait_for_end
from tracer.tools.call.active_run import ActiveRun
from tracer.tools.call.batch import Call, CallBatch, mark_started
from tracer.tools.definition.results import Ending, failed, succeeded, timed_out
from tracer.tools.definition.tool import Tool
from tracer.tools.registry import unknown_tool

log = get_logger(__name__)

CHARACTERS_PER_TOKEN = 4
"""The assumed length of a token. It is used until the model reports the number of tokens."""


class RoundLimitReached(TracerError):
    """The agent used up its rounds without a final answer."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The work of an agent in one step."""

    agent: Agent
    position: int
    """The step's position in its plan."""
    request: str
    """The step's request."""
    earlier_results: str = ""
    """A second message for the model, with the results of earlier steps."""
    history: Sequence[Message] = ()
    """The earlier messages of the session, which the model receives before `request`."""
    check: Callable[[str], object] | None = None
    """Raises `PlanningError` to reject an answer; the model is then asked again."""


async def run_step(run: ApplicationRun, context: ToolContext, task: Task) -> Ending:
    """Execute a step with its agent, and return the step's ending.

    Args:
        run: The run.
        context: The step's context.
        task: The work.

    Raises:
        asyncio.CancelledError: The run was cancelled; the step's ending is recorded.
    """
    ending: Ending | None = None
    with lineage_bound(step_id=context.step_id):
        try:
            await run.record(
                StepStarted(
                    **run.stamp(),
                    plan_id=context.plan_id,
                    step_id=context.step_id,
                    position=task.position,
                    agent_name=task.agent.name,
                    request=task.request,
                )
            )
            ending = await _think_and_act(run, context, task)
        except Exception as error:
            log.exception("step_broke")
            ending = failed(error, Reason.INTERNAL_ERROR)
        finally:
            ending = ending or run.cancelled()
            await run.record(
                StepFinished(
                    **run.stamp(),
                    **ending.fields,
                    plan_id=context.plan_id,
                    step_id=context.step_id,
                    result=ending.result,
                )
            )
    return ending


async def _think_and_act(run: ApplicationRun, context: ToolContext, task: Task) -> Ending:
    agent = task.agent
    context = replace(context, agent=agent)
    may_open_plans = context.depth < run.application.max_depth
    instructions = agent.all_instructions
    try:
        if agent.resolve_in_context:
            async with asyncio.timeout(seconds_left(context.deadline)):
                instructions = await run.instructions.filled(instructions)
    except TimeoutError:
        return timed_out("The time limit expired before the agent's instructions were filled in.")
    except ToolError as error:
        return failed(error)
    messages = [
        Message("system", f"{introduction(agent.name)}\n\n{instructions}".strip()),
        *task.history,
        Message("user", task.request),
    ]
    if task.earlier_results:
        messages.append(Message("user", task.earlier_results))
    rejection: PlanningError | None = None
    for position in range(agent.max_rounds):
        round_context = replace(context, think_act_id=run.new_id())
        tools = agent.tools_now(run.application.registry)
        request = _ModelRequest(
            model=run.application.model_of(agent),
            messages=tuple(messages),
            tools=tools,
            offered=[
                ToolSpec(each.name, each.description, each.parameters)
                for each in tools.values()
                if may_open_plans or not each.opens_plans
            ],
            max_parallel=agent.max_parallel,
        )
        thought = await _ask_model(run, round_context, position, request)
        if isinstance(thought, Ending):
            return thought
        messages.append(thought.answer)
        if thought.calls:
            batch = CallBatch(run, round_context, thought.calls, agent.max_parallel)
            endings = await batch.run(thought.event)
            messages += [Message("tool", each.for_model()) for each in endings]
        else:
            await run.record(thought.event)
            try:
                if task.check is not None:
                    task.check(thought.answer.content)
            except PlanningError as error:
                rejection = error
                messages.append(Message("user", str(error)))
            else:
                return succeeded(thought.answer.content)
        if has_passed(context.deadline):
            return timed_out("The time limit expired before the agent had a final answer.")
    if rejection is not None:
        return failed(rejection, Reason.MODEL_ERROR)
    return failed(
        RoundLimitReached(f"The agent had no final answer after {agent.max_rounds} rounds."),
        Reason.ROUND_LIMIT,
    )


@dataclass(frozen=True)
class _ModelRequest:
    """A request to a model, with the tools that it may call."""

    model: ChatModel
    messages: Sequence[Message]
    tools: Mapping[str, Tool]
    """All of the agent's tools."""
    offered: Sequence[ToolSpec]
    """The tools that the request offers to the model."""
    max_parallel: int
    """How many of the requested calls start at once."""


@dataclass(frozen=True)
class _Thought:
    """A model's response, with the calls that it requested."""

    answer: Message
    calls: list[Call]
    event: ThoughtRecorded
    """Records the response and the calls. It is not written yet. The code that writes it must also
    end the calls."""


class _RoundLinks(TypedDict):
    plan_id: UUID
    step_id: UUID
    think_act_id: UUID


async def _ask_model(
    run: ActiveRun, context: ToolContext, position: int, request: _ModelRequest
) -> _Thought | Ending:
    """Send a request to a model, and return the response with its calls.

    If the request failed, return the ending of the round instead.

    Args:
        run: The run.
        context: The round's context; its `think_act_id` is set.
        position: The number of the think-act within the step, from 0.
        request: The request.

    Raises:
        asyncio.CancelledError: The run was cancelled; the round's ending is recorded.
    """
    assert context.think_act_id is not None
    links: _RoundLinks = {
        "plan_id": context.plan_id,
        "step_id": context.step_id,
        "think_act_id": context.think_act_id,
    }
    ending: Ending | None = None
    messages = messages_json(request.messages)
    try:
        await run.record(
            ThoughtStarted(
                **run.stamp(),
                **links,
                position=position,
                requested_model=request.model.name,
                messages=messages,
                parameters=_parameters(request.model),
                **_offered(run, context.think_act_id, request.offered),
            )
        )
        budget = run.budgets[context.plan_id]
        async with budget.reserved_tokens(len(messages) // CHARACTERS_PER_TOKEN) as use:
            answer = await _complete(run, request, context.deadline)
            if isinstance(answer, Generation):
                counts = (token_count(answer.input_tokens), token_count(answer.output_tokens))
                use.tokens = sum(each or 0 for each in counts) or use.tokens
        if isinstance(answer, Generation):
            thought = _thought(run, links, request, answer)
            ending = Ending(Status.SUCCEEDED)
            return thought
        ending = answer
    except BudgetExhausted as error:
        ending = failed(error)
    except Exception as error:
        log.exception("thinking_broke")
        ending = failed(error, Reason.MODEL_ERROR)
    finally:
        ending = ending or run.cancelled()
        if ending.status is not Status.SUCCEEDED:
            await run.record(ThoughtRecorded(**run.stamp(), **links, **ending.fields))
    if ending.status is Status.CANCELLED:
        raise asyncio.CancelledError
    return ending


def _parameters(model: ChatModel) -> str | None:
    """Return the parameters of a model as JSON; None if it has none, or they are not JSON."""
    parameters = getattr(model, "parameters", None)
    if not isinstance(parameters, Mapping) or not parameters:
        return None
    try:
        return json.dumps(dict(parameters))
    except (TypeError, ValueError):
        return None


def _offered(run: ActiveRun, think_act_id: UUID, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the fields that record which tools a round offered to the model.

    If an earlier round of the run offered the same tools, the field refers to that round.
    """
    if not tools:
        return {}
    text = json.dumps([asdict(tool) for tool in tools], separators=(",", ":"))
    holder = run.offered_tools.setdefault(text, think_act_id)
    return {"offered_tools": text} if holder == think_act_id else {"offered_tools_from": holder}


async def _complete(
    run: ActiveRun, request: _ModelRequest, deadline: float | None
) -> Generation | Ending:
    """Return the model's response, or the ending of the round if the request failed."""
    if has_passed(deadline):
        return timed_out("The time limit expired before the model could be asked.")
    work = asyncio.create_task(request.model.complete(request.messages, request.offered))
    match await wait_for_end(work, deadline):
        case Waited.TIMED_OUT:
            return timed_out("The time limit expired before the model responded.")
        case Waited.CANCELLED:
            return run.cancelled()
    if work.cancelled():
        return failed(ModelError("The model cancelled itself."), Reason.MODEL_ERROR)
    error = work.exception()
    if error is not None:
        return failed(error, Reason.MODEL_ERROR)
    answer: object = work.result()
    if not isinstance(answer, Generation) or not isinstance(answer.text, str):
        return failed(
            ModelError("The model's adapter did not return a `Generation`."), Reason.MODEL_ERROR
        )
    return answer


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _thought(
    run: ActiveRun, links: _RoundLinks, request: _ModelRequest, generation: Generation
) -> _Thought:
    names = [each.name for each in request.offered]
    calls = []
    for position, chosen in enumerate(generation.tool_calls):
        calls.append(
            Call(
                tool_call_id=run.new_id(),
                position=position,
                tool=request.tools.get(chosen.name) or unknown_tool(chosen.name, names),
                name=chosen.name,
                arguments=chosen.arguments,
                provider_call_id=chosen.provider_call_id,
            )
        )
    mark_started(calls, run, request.max_parallel)
    # Values that cannot be recorded are omitted, so that the event is valid.
    event = ThoughtRecorded(
        **run.stamp(),
        **links,
        status=Status.SUCCEEDED,
        model=_text(generation.model),
        input_tokens=token_count(generation.input_tokens),
        output_tokens=token_count(generation.output_tokens),
        cost_usd=usd(generation.cost_usd),
        provider=_text(generation.provider),
        finish_reasons=(reason,) if (reason := _text(generation.finish_reason)) else (),
        cache_read_tokens=token_count(generation.cache_read_tokens),
        cache_written_tokens=token_count(generation.cache_written_tokens),
        reasoning_tokens=token_count(generation.reasoning_tokens),
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
    # Later rounds record these messages too, so they must not contain forged values.
    chosen_calls = tuple(
        replace(chosen, arguments=call.recorded_arguments)
        for chosen, call in zip(generation.tool_calls, calls, strict=True)
    )
    return _Thought(Message("assistant", generation.text, chosen_calls), calls, event)
