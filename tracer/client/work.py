"""Plans and steps, recorded by hand.

See `tracer.client.block` for what all have in common, and `tracer.client.tracing` for how they are
made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any
from uuid import UUID

from tracer.client.block import (
    Ending,
    Work,
    sound,
    text_of,
)
from tracer.client.connection import Connection
from tracer.client.rounds import ToolCall
from tracer.records.events import (
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
)
from tracer.records.status import Reason, Status


class Plan(Work):
    """What an agent set out to do: a run's root plan, or a sub-plan of a tool call or a step."""

    def __init__(
        self,
        connection: Connection,
        opener: ToolCall | Step | None,
        *,
        title: str | None = None,
        request: str | None = None,
        agent: str | None = None,
        steps: Iterable[tuple[str | None, str | None]] = (),
        session_id: str | None = None,
        subject: str | None = None,
        tags: Sequence[str] = (),
        traceparent: str | None = None,
        plan_id: UUID | None = None,
        root_plan_id: UUID | None = None,
    ) -> None:
        """Take a place; see `Tracing.plan`. Ids are given only to what was started elsewhere."""
        super().__init__(connection)
        self.has_started = plan_id is not None
        self.plan_id = plan_id or connection.ids()
        parent = opener.step.plan if isinstance(opener, ToolCall) else opener and opener.plan
        own_run = root_plan_id or self.plan_id
        self.root_plan_id: UUID = parent.root_plan_id if parent else own_run
        self.ids = {"root_plan_id": self.root_plan_id, "plan_id": self.plan_id}
        self.depth: int = parent.depth + 1 if parent else 0
        self.parent = parent
        self.opener = opener
        self.title, self.request, self.agent = text_of(title), text_of(request), text_of(agent)
        self.session_id, self.subject = session_id, subject
        # One label is no series of labels of one letter each.
        self.tags: Sequence[str] = (tags,) if isinstance(tags, str) else tags or ()
        self.traceparent = traceparent
        self.summary: str | None = None
        self.positions = count()
        self.steps = [Step(self, *_planned(each)) for each in steps or ()]
        self._own_steps: dict[None, Step] = {}

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        return self.plan_id

    @property
    def above(self) -> ToolCall | Step | None:
        """What it hangs under."""
        return self.opener

    def _starting_events(self) -> Iterable[Event]:
        opener = self.opener
        is_root = opener is None
        yield sound(
            PlanStarted,
            **self.stamp(),
            parent_plan_id=self.parent.plan_id if self.parent else None,
            tool_call_id=opener.tool_call_id if isinstance(opener, ToolCall) else None,
            opened_by_step_id=opener.step_id if isinstance(opener, Step) else None,
            position=next(opener.sub_plans) if opener else 0,
            depth=self.depth,
            title=self.title,
            user_request=self.request,
            agent_name=self.agent,
            steps=tuple(
                PlannedStep(step_id=step.step_id, agent_name=step.agent, request=step.request)
                for step in self.steps
            ),
            session_id=self.session_id if is_root else None,
            subject=self.subject if is_root else None,
            tags=self.tags if is_root else (),
            traceparent=self.traceparent if is_root else None,
        )

    @property
    def own_step(self) -> Step:
        """The step that does what belongs to no other; it starts when it is first asked for."""
        step = self._own_steps.get(None)
        if step is None:
            made = Step(self, self.agent, self.request)
            # Several threads may ask for it at once.
            step = self._own_steps.setdefault(None, made)
            if step is made and self.has_started:
                step.start()
        return step

    def start(self) -> None:
        """Record that it starts, and return before that is durable."""
        super().start()
        for step in self._own_steps.values():
            step.start()

    def finish(self, summary: Any = None) -> None:
        """Record that it succeeded, and what came of it."""
        self.summary = text_of(summary)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        for step in self._own_steps.values():
            if not step.has_ended:
                step.has_ended = True
                step.result = step.result or self.summary
                yield from step._ending_events(ending)
        missed = tuple(step.step_id for step in self.steps if not step.has_started)
        yield sound(
            PlanFinished,
            **self.stamp(),
            **ending,
            summary=self.summary,
            not_reached_step_ids=missed,
        )


def _planned(step: Any) -> tuple[str | None, str | None]:
    """Return an announced step's agent and request: whatever it is, the agent goes on."""
    if isinstance(step, (tuple, list)):
        agent, request = (*step, None, None)[:2]
        return agent, request
    return None, step


class Step(Work):
    """One item of a plan, carried out by one agent."""

    def __init__(
        self,
        plan: Plan,
        agent: str | None,
        request: str | None,
        step_id: UUID | None = None,
        around: Plan | None = None,
    ) -> None:
        """Take a place; see `Tracing.step`."""
        super().__init__(plan.connection, around)
        self.plan = plan
        self.step_id = step_id or plan.connection.ids()
        self.ids = {**plan.ids, "step_id": self.step_id}
        self.agent, self.request = text_of(agent), text_of(request)
        self.result: str | None = None
        self.unstarted: dict[UUID, ToolCall] = {}
        """The tool calls that a model chose and that have not started yet."""
        self.rounds, self.calls, self.sub_plans = count(), count(), count()
        self._position = next(plan.positions)

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        return self.step_id

    @property
    def above(self) -> Plan:
        """What it hangs under."""
        return self.plan

    def _starting_events(self) -> Iterable[Event]:
        yield sound(
            StepStarted,
            **self.stamp(),
            position=self._position,
            agent_name=self.agent,
            request=self.request,
        )

    def finish(self, result: Any = None) -> None:
        """Record that it succeeded, and the agent's answer."""
        self.result = text_of(result)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        for call in list(self.unstarted.values()):
            yield from call._ending_events(
                {"status": Status.CANCELLED, "reason": Reason.NOT_REACHED, "error": None}
            )
        yield sound(StepFinished, **self.stamp(), **ending, result=self.result)
