"""Run the steps of a plan in order. The plan is recorded before it starts and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from tracer.context import Identity, PlanOnPath, ToolContext
from tracer.errors import ToolError, TracerError
from tracer.logs import get_logger, lineage_bound
from tracer.records.events import PlanFinished, PlannedStep, PlanStarted
from tracer.records.status import Reason, Status
from tracer.resource import NO_SERVICE, service_of_environment
from tracer.runtime.agent import Agent
from tracer.runtime.application import ApplicationRun
from tracer.runtime.chat_model import Message
from tracer.runtime.plan import PlanStep, PlanSteps
from tracer.runtime.planner import planner_agent, read_plan
from tracer.runtime.think_act_loop import Task, run_step
from tracer.tasks import capped_deadline, has_passed, seconds_left
from tracer.tools.definition.results import Ending, failed, model_view, succeeded, timed_out

log = get_logger(__name__)

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
