"""Running a plan: its steps in order, recorded before it starts and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from tracer.context import Identity, PlanOnPath, ToolContext
from tracer.errors import ToolError, TracerError
from tracer.logs import get_logger, lineage_bound
from tracer.records.events import PlanFinished, PlannedStep, PlanStarted
from tracer.records.status import Reason, Status
from tracer.runtime.agent import Agent
from tracer.runtime.application import AgentRun
from tracer.runtime.chat_model import Message
from tracer.runtime.plan import Plan, PlanStep
from tracer.runtime.planner import planner_agent, read_plan
from tracer.runtime.think_act_loop import Task, run_step
from tracer.tasks import has_passed, seconds_left
from tracer.tools.definition.results import Ending, failed, model_view, succeeded, timed_out

log = get_logger(__name__)

KNOWN_CHARACTERS = 16_000
"""How much of each earlier step's result an agent is shown."""


class StepFailed(TracerError):
    """A step of the plan failed."""


@dataclass(frozen=True, kw_only=True)
class PlanPlace:
    """A plan's place in the lineage, and what was handed down to it."""

    plan_id: UUID
    parent_plan_id: UUID | None = None
    tool_call_id: UUID | None = None
    """The tool call that opens it; None for the root plan."""
    depth: int = 0
    deadline: float | None = None
    identity: Identity | None = field(default=None, repr=False)
    path: tuple[PlanOnPath, ...] = ()
    holds: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PlanHead:
    """What a plan's record says of it at the start."""

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
class _Step:
    step_id: UUID
    agent: Agent
    request: str


class PlanRunner:
    """Runs one plan, once."""

    def __init__(
        self,
        scope: AgentRun,
        place: PlanPlace,
        head: PlanHead,
        plan: Plan | None,
        history: Callable[[], Awaitable[Sequence[Message]]] | None = None,
    ) -> None:
        """Prepare a plan; nothing is recorded yet.

        Args:
            scope: The run.
            place: Where the plan belongs.
            head: What it is called, and whatever else is recorded at its start.
            plan: Its steps. None: planning them from the user's request is its first step,
                carried out by the planner.
            history: Returns the messages that the first step's agent receives before its request;
                awaited once the plan's start is recorded. If it raises `ToolError`, the plan fails.
                None: no messages.

        Raises:
            BadRequest: A step names an agent that there is not.
        """
        self.started = asyncio.Event()
        """Set once the plan's start is durable."""
        self.start: PlanStarted | None = None
        """What was recorded at the start; None before it."""
        self.ending = scope.cancelled()
        """How the plan ended; meanwhile, and where it never began, as if it was cancelled."""
        self._scope = scope
        self._place = place
        self._head = head
        self._plan = plan
        self._history = history
        self._steps = self._resolved(plan.steps) if plan is not None else [self._planning_step()]
        self._reached = 0

    async def run(self) -> Ending:
        """Carry out the plan and return how it ended.

        Raises:
            asyncio.CancelledError: The run was cancelled; the plan has its ending.
        """
        scope = self._scope
        with lineage_bound(root_plan_id=scope.root_plan_id, plan_id=self._place.plan_id):
            try:
                try:
                    self.start = self._start()
                    await scope.record(self.start)
                finally:
                    self.started.set()
                self.ending = await self._carry_out()
            except asyncio.CancelledError:
                self.ending = scope.cancelled()
                raise
            except Exception as error:
                log.exception("plan_broke")
                self.ending = failed(error, Reason.INTERNAL_ERROR)
            finally:
                await scope.record(self._end())
        return self.ending

    async def _carry_out(self) -> Ending:
        history: Sequence[Message] = ()
        try:
            if self._history is not None:
                async with asyncio.timeout(seconds_left(self._place.deadline)):
                    history = await self._history()
        except TimeoutError:
            return timed_out("The time was over before the session's history was read.")
        except ToolError as error:
            return failed(error)
        first = 0
        if self._plan is None:
            first = 1
            agents = self._scope.application.agents_by_name.keys()
            check = partial(read_plan, agents=agents)
            ending = await self._run_step(0, history=history, check=check)
            if ending.status is not Status.SUCCEEDED:
                return self._failed(0, ending)
            self._steps += self._resolved(read_plan(ending.result or "", agents))
            # The same start again, with the steps that are known now: they become `pending`.
            await self._scope.record(self._start())
        go_on = self._plan is not None and self._plan.continue_on_failure
        ending = succeeded("")
        results: list[tuple[_Step, Ending]] = []
        for position in range(first, len(self._steps)):
            if has_passed(self._place.deadline):
                return timed_out("The time was over before all steps were done.")
            of_user = history if position == 0 else ()
            ending = await self._run_step(position, known=_known(results), history=of_user)
            results.append((self._steps[position], ending))
            if ending.status is not Status.SUCCEEDED and not go_on:
                return self._failed(position, ending)
        if ending.status is not Status.SUCCEEDED:
            return self._failed(len(self._steps) - 1, ending)
        return succeeded(ending.result)

    async def _run_step(
        self,
        position: int,
        *,
        known: str = "",
        history: Sequence[Message],
        check: Callable[[str], object] | None = None,
    ) -> Ending:
        step = self._steps[position]
        self._reached = position + 1
        task = Task(
            agent=step.agent,
            position=position,
            request=step.request,
            known=known,
            history=history,
            check=check,
        )
        place = ToolContext(
            toolcallId=None,
            root_plan_id=self._scope.root_plan_id,
            plan_id=self._place.plan_id,
            step_id=step.step_id,
            depth=self._place.depth,
            deadline=self._place.deadline,
            identity=self._place.identity,
            thread_id=self._scope.thread_id,
            path=self._place.path,
            holds=self._place.holds,
            run=self._scope,
        )
        return await run_step(self._scope, place, task)

    def _failed(self, position: int, ending: Ending) -> Ending:
        """Return the ending of a plan that stops at this step."""
        if ending.reason == Reason.TIMED_OUT:
            return timed_out(f"The time was over in step {position}.")
        said = ending.error.message if ending.error else ending.status.value
        step = f"Step {position} ({self._steps[position].agent.name})"
        return failed(StepFailed(f"{step} failed: {said}"), Reason.STEP_FAILED)

    def _resolved(self, steps: Sequence[PlanStep]) -> list[_Step]:
        scope = self._scope
        return [
            _Step(scope.new_id(), scope.application.agent(each.agent), each.request)
            for each in steps
        ]

    def _planning_step(self) -> _Step:
        agent = planner_agent(self._scope.application)
        return _Step(self._scope.new_id(), agent, self._head.user_request)

    def _start(self) -> PlanStarted:
        place, head = self._place, self._head
        return PlanStarted(
            **self._scope.stamp(),
            plan_id=place.plan_id,
            parent_plan_id=place.parent_plan_id,
            tool_call_id=place.tool_call_id,
            depth=place.depth,
            title=head.title,
            user_request=head.user_request,
            agent_name=head.agent_name,
            template=head.template,
            template_version=head.template_version,
            session_id=head.session_id,
            subject=head.subject,
            tags=head.tags,
            traceparent=head.traceparent,
            steps=tuple(
                PlannedStep(step_id=each.step_id, agent_name=each.agent.name, request=each.request)
                for each in self._steps
            ),
        )

    def _end(self) -> PlanFinished:
        return PlanFinished(
            **self._scope.stamp(),
            **self.ending.fields,
            plan_id=self._place.plan_id,
            summary=self.ending.result,
            not_reached_step_ids=tuple(each.step_id for each in self._steps[self._reached :]),
        )


def _known(results: Sequence[tuple[_Step, Ending]]) -> str:
    """Return what an agent is told of the steps before its own."""
    if not results:
        return ""
    said = [
        f"- {step.request}\n  → {model_view(ending.for_model(), KNOWN_CHARACTERS)}"
        for step, ending in results
    ]
    return "What the steps before this one came to:\n" + "\n".join(said)
