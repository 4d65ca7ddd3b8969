"""The loop of an agent: plans, their steps, and the rounds of a step.

A round is one call of the model and the tool calls that it requests. A tool may be an agent; then
it opens a sub-plan.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypedDict
from uuid import UUID

from pydantic_core import to_jsonable_python

from tracer.concurrency import Waited, capped_deadline, has_passed, seconds_left, wait_for_end
from tracer.context import Identity, PlanOnPath, ToolContext
from tracer.errors import (
    BudgetExhausted,
    DepthLimitReached,
    MissingToolCallId,
    ModelError,
    PlanCycle,
    PlanningError,
    ToolError,
    TracerError,
)
from tracer.logs import get_logger, lineage_bound
from tracer.records import Reason, Status
from tracer.records.events import (
    ChosenToolCall,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
)
from tracer.records.prices import token_count, usd
from tracer.records.results import Ending, failed, model_view, result_text, succeeded, timed_out
from tracer.resource import NO_SERVICE, service_of_environment
from tracer.runtime.application import (
    Agent,
    ApplicationRun,
    PlanStep,
    PlanSteps,
    PlanTemplate,
    application_run_of,
    introduction,
    planner_agent,
    read_plan,
)
from tracer.runtime.chat_model import ChatModel, Generation, Message, ToolSpec, messages_json
from tracer.tools import ActiveRun, Tool, ToolType, unknown_tool
from tracer.tools.call import Call, CallBatch, mark_started

# --- The think-act loop: an agent carries out one step in rounds.
#
# In each round, the loop sends a request to the model, which requests tool calls or answers. Each
# round is recorded before it starts and when it ends.

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


# --- Run the steps of a plan in order. The plan is recorded before it starts and when it ends.


EARLIER_RESULT_CHARACTERS = 16_000
"""How much of each earlier step's result an agent receives."""

USER_SECONDS = 5.0
"""How long after its start a run still waits for the token resolver to record its user."""


class StepFailed(TracerError):
    """A step of the plan failed."""


@dataclass(frozen=True, kw_only=True)
class PlanContext:
    """The position of a plan in the lineage, and the values that it inherits from its parent."""

    plan_id: UUID
    parent_plan_id: UUID | None = None
    tool_call_id: UUID | None = None
    """The tool call that opens the plan; None for the root plan."""
    depth: int = 0
    deadline: float | None = None
    identity: Identity | None = field(default=None, repr=False)
    path: tuple[PlanOnPath, ...] = ()
    holds_limit: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanDetails:
    """The fields that are recorded at the start of a plan."""

    title: str
    user_request: str
    agent_name: str | None = None
    template: str | None = None
    template_version: str | None = None
    session_id: str | None = None
    subject: str | None = None
    tags: tuple[str, ...] = ()
    traceparent: str | None = None


@dataclass(frozen=True)
class _AssignedStep:
    step_id: UUID
    agent: Agent
    request: str


class PlanRunner:
    """Runs one plan, once."""

    def __init__(
        self,
        run: ApplicationRun,
        context: PlanContext,
        details: PlanDetails,
        plan: PlanSteps | None,
        history: Callable[[], Awaitable[Sequence[Message]]] | None = None,
    ) -> None:
        """Prepare a plan, without recording anything.

        Args:
            run: The run.
            context: The plan's position in the lineage.
            details: The fields that are recorded at its start.
            plan: The plan's steps. If None, the planner makes them from the user's request, in a
                first step.
            history: Returns the messages that the first step's agent receives before its request.
                Called after the plan's start is recorded. If `history` raises `ToolError`, the plan
                fails. If None, the agent receives no earlier messages.

        Raises:
            BadRequest: A step names an agent that does not exist.
        """
        self.started = asyncio.Event()
        """Set once the plan's start is durable."""
        self.start: PlanStarted | None = None
        """The event that records the plan's start; None if the plan has not started."""
        self.ending = run.cancelled()
        """The plan's ending. Until the plan ends, this is the ending of a cancelled plan."""
        self._run = run
        self._context = context
        self._details = details
        self._plan = plan
        self._history = history
        self._steps = self._resolved(plan.steps) if plan is not None else [self._planning_step()]
        self._reached = 0

    async def run(self) -> Ending:
        """Carry out the plan and return its ending.

        Raises:
            asyncio.CancelledError: The run was cancelled; the plan's ending is recorded.
        """
        run = self._run
        with lineage_bound(root_plan_id=run.root_plan_id, plan_id=self._context.plan_id):
            try:
                try:
                    self.start = self._start()
                    await run.record(self.start)
                finally:
                    self.started.set()
                self.ending = await self._run_and_record_user()
            except asyncio.CancelledError:
                self.ending = run.cancelled()
                raise
            except Exception as error:
                log.exception("plan_broke")
                self.ending = failed(error, Reason.INTERNAL_ERROR)
            finally:
                await run.record(self._end())
        return self.ending

    async def _run_and_record_user(self) -> Ending:
        """Run the steps. Meanwhile, find the caller's user, and record it in the root plan."""
        if self._context.parent_plan_id is not None or self._details.subject is not None:
            return await self._run_steps()
        recording = asyncio.create_task(self._record_user())
        try:
            ending = await self._run_steps()
            await asyncio.wait({recording})
        finally:
            recording.cancel()
        return ending

    async def _record_user(self) -> None:
        """Record the start again, with the user. The first record does not wait for the user."""
        deadline = capped_deadline(self._context.deadline, USER_SECONDS)
        try:
            async with asyncio.timeout(seconds_left(deadline)):
                user = await self._run.recorded_user()
        except TimeoutError:
            log.warning("user_not_recorded")
            return
        if user is not None:
            self._details = replace(self._details, subject=user)
            await self._run.record(self._start())

    async def _run_steps(self) -> Ending:
        history: Sequence[Message] = ()
        try:
            if self._history is not None:
                async with asyncio.timeout(seconds_left(self._context.deadline)):
                    history = await self._history()
        except TimeoutError:
            return timed_out("The time limit expired before the session's history was read.")
        except ToolError as error:
            return failed(error)
        first = 0
        if self._plan is None:
            first = 1
            agents = self._run.application.agents_by_name.keys()
            check = partial(read_plan, agents=agents)
            ending = await self._run_step(0, history=history, check=check)
            if ending.status is not Status.SUCCEEDED:
                return self._failed(0, ending)
            self._steps += self._resolved(read_plan(ending.result or "", agents))
            # The start is recorded again with the steps, which makes them `pending`.
            await self._run.record(self._start())
        continues = self._plan is not None and self._plan.continue_on_failure
        ending = succeeded("")
        results: list[tuple[_AssignedStep, Ending]] = []
        for position in range(first, len(self._steps)):
            if has_passed(self._context.deadline):
                return timed_out("The time limit expired before all steps were done.")
            step_history = history if position == 0 else ()
            ending = await self._run_step(
                position, earlier_results=_earlier_results(results), history=step_history
            )
            results.append((self._steps[position], ending))
            if ending.status is not Status.SUCCEEDED and not continues:
                return self._failed(position, ending)
        if ending.status is not Status.SUCCEEDED:
            return self._failed(len(self._steps) - 1, ending)
        return succeeded(ending.result)

    async def _run_step(
        self,
        position: int,
        *,
        earlier_results: str = "",
        history: Sequence[Message],
        check: Callable[[str], object] | None = None,
    ) -> Ending:
        step = self._steps[position]
        self._reached = position + 1
        task = Task(
            agent=step.agent,
            position=position,
            request=step.request,
            earlier_results=earlier_results,
            history=history,
            check=check,
        )
        context = ToolContext(
            tool_call_id=None,
            root_plan_id=self._run.root_plan_id,
            plan_id=self._context.plan_id,
            step_id=step.step_id,
            depth=self._context.depth,
            deadline=self._context.deadline,
            identity=self._context.identity,
            thread_id=self._run.thread_id,
            path=self._context.path,
            holds_limit=self._context.holds_limit,
            run=self._run,
        )
        return await run_step(self._run, context, task)

    def _failed(self, position: int, ending: Ending) -> Ending:
        """Return the plan's ending, given the `ending` of the step at which the plan fails."""
        if ending.reason == Reason.TIMED_OUT:
            return timed_out(f"The time limit expired in step {position}.")
        message = ending.error.message if ending.error else ending.status.value
        step = f"Step {position} ({self._steps[position].agent.name})"
        return failed(StepFailed(f"{step} failed: {message}"), Reason.STEP_FAILED)

    def _resolved(self, steps: Sequence[PlanStep]) -> list[_AssignedStep]:
        run = self._run
        return [
            _AssignedStep(run.new_id(), run.application.agent(each.agent), each.request)
            for each in steps
        ]

    def _planning_step(self) -> _AssignedStep:
        agent = planner_agent(self._run.application)
        return _AssignedStep(self._run.new_id(), agent, self._details.user_request)

    def _start(self) -> PlanStarted:
        context, details = self._context, self._details
        return PlanStarted(
            **self._run.stamp(),
            plan_id=context.plan_id,
            parent_plan_id=context.parent_plan_id,
            tool_call_id=context.tool_call_id,
            depth=context.depth,
            title=details.title,
            user_request=details.user_request,
            agent_name=details.agent_name,
            template=details.template,
            template_version=details.template_version,
            session_id=details.session_id,
            subject=details.subject,
            tags=details.tags,
            traceparent=details.traceparent,
            **(service_of_environment() if context.parent_plan_id is None else NO_SERVICE),
            steps=tuple(
                PlannedStep(step_id=each.step_id, agent_name=each.agent.name, request=each.request)
                for each in self._steps
            ),
        )

    def _end(self) -> PlanFinished:
        return PlanFinished(
            **self._run.stamp(),
            **self.ending.fields,
            plan_id=self._context.plan_id,
            summary=self.ending.result,
            not_reached_step_ids=tuple(each.step_id for each in self._steps[self._reached :]),
        )


def _earlier_results(results: Sequence[tuple[_AssignedStep, Ending]]) -> str:
    """Return a message for an agent about the results of earlier steps; empty if there are none."""
    if not results:
        return ""
    lines = [
        f"- {step.request}\n  → {model_view(ending.for_model(), EARLIER_RESULT_CHARACTERS)}"
        for step, ending in results
    ]
    return "Results of the earlier steps:\n" + "\n".join(lines)


# --- The sub-plan tool: offers a plan template to models as a tool.


class SubPlanFailed(ToolError):
    """The sub-plan failed."""

    reason = Reason.SUBPLAN_FAILED.value


class SubPlanTimedOut(ToolError):
    """The sub-plan timed out."""

    reason = Reason.TIMED_OUT.value


def subplan_tool(template: PlanTemplate) -> Tool:
    """Return a tool that runs the template's plan, and returns its result.

    Raises:
        RegistrationError: A parameter of the template has a type that cannot be read from JSON.
    """
    parameters = template.typed_parameters()

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return await _run_sub_plan(template, arguments, context)

    return Tool(
        name=template.name,
        description=template.description,
        parameters=parameters.json_schema,
        check=parameters.check,
        run=run,
        tool_type=ToolType.SUBPLAN,
        ends_by_itself=True,
        opens_plans=True,
    )


async def _run_sub_plan(
    template: PlanTemplate, arguments: dict[str, Any], context: ToolContext
) -> str:
    if context.tool_call_id is None:
        raise MissingToolCallId
    run = application_run_of(context)
    depth = context.depth + 1
    if depth > run.application.max_depth:
        raise DepthLimitReached(
            f"Sub-plans are nested {context.depth} deep already, which is the limit. Do the "
            "task without another sub-plan."
        )
    here = PlanOnPath(template.name, _digest(arguments))
    if here in context.path:
        raise PlanCycle(
            f"The sub-plan {template.name!r} with the same arguments opened this plan, directly or "
            "indirectly. Opening it again would never end. Use other arguments, or do the task "
            "without it."
        )
    plan = template.filled(arguments)
    requests = [step.request for step in plan.steps]
    agents = {run.application.agent(step.agent).name for step in plan.steps}
    plan_id = run.new_id()
    limits = template.budget
    run.open_budget(plan_id, context.plan_id, limits)
    timeout = capped_deadline(context.deadline, template.timeout)
    runner = PlanRunner(
        run,
        PlanContext(
            plan_id=plan_id,
            parent_plan_id=context.plan_id,
            tool_call_id=context.tool_call_id,
            depth=depth,
            deadline=capped_deadline(timeout, limits.seconds if limits else None),
            identity=context.identity,
            path=(*context.path, here),
            holds_limit=context.holds_limit,
        ),
        PlanDetails(
            title=plan.title,
            user_request="\n".join(requests),
            agent_name=agents.pop() if len(agents) == 1 else None,
            template=template.name,
            template_version=template.version,
        ),
        plan,
    )
    ending = await runner.run()
    if ending.status is Status.SUCCEEDED:
        return ending.result or ""
    message = ending.error.message if ending.error else ending.status.value
    if ending.reason == Reason.TIMED_OUT:
        raise SubPlanTimedOut(message)
    raise SubPlanFailed(f"The sub-plan {plan.title!r} failed. {message}")


def _digest(arguments: dict[str, Any]) -> str:
    """Return a digest of arguments, which a context stores in place of the arguments."""
    try:
        comparable = to_jsonable_python(arguments, fallback=repr, bytes_mode="base64")
        text = json.dumps(comparable, sort_keys=True)
    except (ValueError, TypeError):
        text = result_text(arguments)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
