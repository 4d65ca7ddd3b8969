"""A run that no planner has made: one plan of one step, recorded around whatever makes calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypedDict

from tracer.context import ToolContext, tool_context_bound
from tracer.records.events import PlanFinished, PlannedStep, PlanStarted, StepFinished, StepStarted
from tracer.tasks import earlier
from tracer.tools.call.active_run import RunScope
from tracer.tools.call.budget import BudgetLimits
from tracer.tools.definition.results import failed, succeeded


class OwnRunOptions(TypedDict, total=False):
    """What may be said of such a run."""

    request: str | None
    """What was asked."""
    agent_name: str | None
    """Who makes the calls."""
    session_id: str | None
    """The conversation that it belongs to."""
    limits: BudgetLimits | None
    """What it may use up."""
    tags: Sequence[str]
    """Labels."""


class OwnRun:
    """Such a run while it goes on."""

    def __init__(self, scope: RunScope, limits: BudgetLimits | None) -> None:
        self.ending = succeeded(None)
        """How it will have ended, unless what it stands around raises."""
        self.place = ToolContext(
            toolcallId=None,
            root_plan_id=scope.root_plan_id,
            plan_id=scope.root_plan_id,
            step_id=scope.new_id(),
            deadline=earlier(None, limits.seconds if limits else None),
            identity=scope.identity,
            thread_id=scope.thread_id,
            run=scope,
            is_recorded=scope.is_recorded,
        )
        self._scope = scope

    async def record_start(self, title: str, options: OwnRunOptions) -> None:
        """Record that the plan and its step begin."""
        scope, place = self._scope, self.place
        agent_name, request = options.get("agent_name"), options.get("request")
        step = PlannedStep(step_id=place.step_id, agent_name=agent_name, request=request)
        await scope.record(
            PlanStarted(
                **scope.stamp(),
                plan_id=place.plan_id,
                depth=0,
                title=title,
                user_request=request,
                agent_name=agent_name,
                session_id=options.get("session_id"),
                tags=tuple(options.get("tags", ())),
                steps=(step,),
            ),
            StepStarted(
                **scope.stamp(),
                plan_id=place.plan_id,
                step_id=place.step_id,
                position=0,
                agent_name=agent_name,
                request=request,
            ),
        )

    async def record_ending(self) -> None:
        """Record how the step and its plan ended."""
        scope, place, ending = self._scope, self.place, self.ending
        await scope.record(
            StepFinished(
                **scope.stamp(),
                **ending.fields,
                plan_id=place.plan_id,
                step_id=place.step_id,
                result=ending.result,
            ),
            PlanFinished(
                **scope.stamp(), **ending.fields, plan_id=place.plan_id, summary=ending.result
            ),
        )


@asynccontextmanager
async def recorded(scope: RunScope, title: str, options: OwnRunOptions) -> AsyncIterator[OwnRun]:
    """Record what happens inside as one run; its place is current there.

    Args:
        scope: The run.
        title: What it is called.
        options: What else is said of it.
    """
    own = OwnRun(scope, options.get("limits"))
    try:
        await own.record_start(title, options)
        with tool_context_bound(own.place):
            yield own
    except (asyncio.CancelledError, GeneratorExit):
        own.ending = scope.cancelled()
        raise
    except BaseException as error:
        own.ending = failed(error, scrub=scope.secrets().scrub)
        raise
    finally:
        try:
            await own.record_ending()
        finally:
            # Also where recording it was cancelled: nobody acts for the caller any more.
            await scope.end()
