"""A run without a planner: a plan of one step, recorded around the code that makes the calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypedDict

from tracer.context import ToolContext, tool_context_bound
from tracer.records.events import PlanFinished, PlannedStep, PlanStarted, StepFinished, StepStarted
from tracer.resource import service_of_environment
from tracer.tasks import capped_deadline
from tracer.tools.call.active_run import ActiveRun
from tracer.tools.call.budget import BudgetLimits
from tracer.tools.definition.results import failed, succeeded


class StandaloneRunOptions(TypedDict, total=False):
    """Optional fields of a standalone run."""

    request: str | None
    """The user's request."""
    agent_name: str | None
    """The agent that makes the calls."""
    session_id: str | None
    """The session that the run belongs to."""
    limits: BudgetLimits | None
    """The run's budget."""
    tags: Sequence[str]
    """Labels by which runs can be filtered."""


class StandaloneRun:
    """A standalone run while it is in progress."""

    def __init__(self, run: ActiveRun, limits: BudgetLimits | None) -> None:
        self.ending = succeeded(None)
        """The ending that `record_ending` records."""
        self.context = ToolContext(
            tool_call_id=None,
            root_plan_id=run.root_plan_id,
            plan_id=run.root_plan_id,
            step_id=run.new_id(),
            deadline=capped_deadline(None, limits.seconds if limits else None),
            identity=run.identity,
            thread_id=run.thread_id,
            run=run,
            is_recorded=run.is_recorded,
        )
        self._scope = run

    async def record_start(self, title: str, options: StandaloneRunOptions) -> None:
        """Record the start of the plan and its step."""
        run, context = self._scope, self.context
        agent_name, request = options.get("agent_name"), options.get("request")
        step = PlannedStep(step_id=context.step_id, agent_name=agent_name, request=request)
        await run.record(
            PlanStarted(
                **run.stamp(),
                plan_id=context.plan_id,
                depth=0,
                title=title,
                user_request=request,
                agent_name=agent_name,
                session_id=options.get("session_id"),
                tags=tuple(options.get("tags", ())),
                **service_of_environment(),
                steps=(step,),
            ),
            StepStarted(
                **run.stamp(),
                plan_id=context.plan_id,
                step_id=context.step_id,
                position=0,
                agent_name=agent_name,
                request=request,
            ),
        )

    async def record_ending(self) -> None:
        """Record the end of the step and the plan."""
        run, context, ending = self._scope, self.context, self.ending
        await run.record(
            StepFinished(
                **run.stamp(),
                **ending.fields,
                plan_id=context.plan_id,
                step_id=context.step_id,
                result=ending.result,
            ),
            PlanFinished(
                **run.stamp(), **ending.fields, plan_id=context.plan_id, summary=ending.result
            ),
        )


@asynccontextmanager
async def record_run(
    run: ActiveRun, title: str, options: StandaloneRunOptions
) -> AsyncIterator[StandaloneRun]:
    """Record the `async with` block as one run.

    Within the block, `current_tool_context` returns the run's context.

    Args:
        run: The run.
        title: The plan's title.
        options: Optional fields of the run.
    """
    standalone = StandaloneRun(run, options.get("limits"))
    try:
        await standalone.record_start(title, options)
        with tool_context_bound(standalone.context):
            yield standalone
    except (asyncio.CancelledError, GeneratorExit):
        standalone.ending = run.cancelled()
        raise
    except BaseException as error:
        standalone.ending = failed(error, scrub=run.secrets().scrub)
        raise
    finally:
        try:
            await standalone.record_ending()
        finally:
            # Even if recording was cancelled: the caller's identity must not outlive the run.
            await run.end()
