"""Single events of one small run, for tests that are about one promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tracer.records import Status, new_id
from tracer.records.events import (
    EndingStatus,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@dataclass
class Moments:
    """Makes events of one run: a root plan, a step, a think-act and a tool call."""

    root: UUID = field(default_factory=new_id)
    step: UUID = field(default_factory=new_id)
    think_act: UUID = field(default_factory=new_id)
    call: UUID = field(default_factory=new_id)

    def _place(self, at: int, plan: UUID | None) -> dict[str, Any]:
        moment = START + timedelta(seconds=at)
        return {"at": moment, "root_plan_id": self.root, "plan_id": plan or self.root}

    def plan_started(self, at: int = 0, plan: UUID | None = None, **said: Any) -> PlanStarted:
        return PlanStarted(**self._place(at, plan), **said)

    def sub_plan_started(self, plan: UUID, call: UUID, **said: Any) -> PlanStarted:
        said = {"parent_plan_id": self.root, "depth": 1, **said}
        return self.plan_started(plan=plan, tool_call_id=call, **said)

    def plan_finished(
        self,
        at: int = 9,
        status: EndingStatus = Status.SUCCEEDED,
        plan: UUID | None = None,
        **said: Any,
    ) -> PlanFinished:
        return PlanFinished(**self._place(at, plan), status=status, **said)

    def planned(self, **said: Any) -> PlannedStep:
        return PlannedStep(step_id=self.step, **said)

    def step_started(self, at: int = 1, plan: UUID | None = None, **said: Any) -> StepStarted:
        return StepStarted(**{**self._place(at, plan), "step_id": self.step, **said})

    def step_finished(self, at: int = 8, **said: Any) -> StepFinished:
        said = {"status": Status.SUCCEEDED, **said}
        return StepFinished(**self._place(at, None), step_id=self.step, **said)

    def thought_started(self, at: int = 2, **said: Any) -> ThoughtStarted:
        said = {"think_act_id": self.think_act, "position": 0, **said}
        return ThoughtStarted(**self._place(at, None), step_id=self.step, **said)

    def call_started(self, at: int = 3, **said: Any) -> ToolCallStarted:
        said = {"tool_call_id": self.call, "step_id": self.step, "name": "measure", **said}
        return ToolCallStarted(**{**self._place(at, None), **said})

    def call_finished(
        self, at: int = 5, status: EndingStatus = Status.SUCCEEDED, **said: Any
    ) -> ToolCallFinished:
        said = {"tool_call_id": self.call, "step_id": self.step, **said}
        return ToolCallFinished(**self._place(at, None), status=status, **said)
