"""The think-act loop: an agent carries out one step, round by round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tracer.context import ToolContext
from tracer.errors import PlanningError, ToolError, TracerError
from tracer.events import StepFinished, StepStarted
from tracer.logs import get_logger, lineage_bound
from tracer.runtime.agent import Agent, introduction
from tracer.runtime.agent_run import AgentRun
from tracer.runtime.chat_model import Message, ToolSpec
from tracer.runtime.thinking import Question, think
from tracer.status import Reason
from tracer.tools.call_batch import CallBatch
from tracer.tools.ending import Ending, failed, succeeded, timed_out
from tracer.tools.waiting import has_passed, seconds_left

log = get_logger(__name__)


class RoundLimitReached(TracerError):
    """The agent used up its rounds without a final answer."""


def accept(answer: str) -> None:
    """Take any answer."""


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
    check: Callable[[str], object] = accept
    """Raises `PlanningError` where an answer cannot be taken; then the agent is asked again."""


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
        round_place = replace(place, think_act_id=scope.ids())
        tools = agent.tools_now(scope.application.registry)
        question = Question(
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
        thought = await think(scope, round_place, position, question)
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
