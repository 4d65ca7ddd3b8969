"""Runs told as events, by seconds from their start, with ids that count up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, Final
from uuid import UUID

from tracer.records import Reason, Status
from tracer.records.events import (
    ChosenToolCall,
    EndingStatus,
    ErrorInfo,
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)

OK: Final = Status.SUCCEEDED
FAILED: Final = Status.FAILED
CANCELLED: Final = Status.CANCELLED


@dataclass(frozen=True)
class Plan:
    """A plan of one step, of one agent."""

    id: UUID
    step: UUID
    depth: int
    began: float
    ids: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call, and where it belongs."""

    id: UUID
    plan: Plan
    links: dict[str, Any]


@dataclass
class Telling:
    """A run in the making.

    Its ids are those of the run's number, counted up; all moments are seconds from its start.
    """

    number: int
    start: datetime
    recorder: UUID
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ids = count(1)

    def new_id(self) -> UUID:
        return UUID(f"00000000-0000-7000-8000-{self.number:04}{next(self._ids):08}")

    def moment(self, seconds: float) -> datetime:
        return self.start + timedelta(seconds=seconds)

    def plan(
        self,
        at: float,
        agent: str,
        title: str,
        opened_by: Call | Plan | None = None,
        **of_run: Any,
    ) -> Plan:
        """Start a plan and its one step; opened by a call, or handed off by a plan's step."""
        plan_id, step_id = self.new_id(), self.new_id()
        root = self.events[0].root_plan_id if self.events else plan_id
        said: dict[str, Any] = {
            "root_plan_id": root,
            "plan_id": plan_id,
            "recorder_id": self.recorder,
        }
        opener: dict[str, Any] = {}
        depth = 0
        if isinstance(opened_by, Call):
            opener = {"parent_plan_id": opened_by.plan.id, "tool_call_id": opened_by.id}
            depth = opened_by.plan.depth + 1
        elif opened_by is not None:
            opener = {"parent_plan_id": opened_by.id, "opened_by_step_id": opened_by.step}
            depth = opened_by.depth + 1
        steps = (PlannedStep(step_id=step_id, agent_name=agent, request=title),)
        self.events += (
            PlanStarted(
                at=self.moment(at),
                **said,
                **opener,
                depth=depth,
                title=title,
                agent_name=agent,
                steps=steps,
                **of_run,
            ),
            StepStarted(at=self.moment(at), **said, step_id=step_id, position=0, agent_name=agent),
        )
        return Plan(plan_id, step_id, depth, at, said)

    def end(
        self, plan: Plan, at: float, status: EndingStatus = OK, error: str | None = None
    ) -> None:
        """End a plan and its step."""
        how: dict[str, Any] = {"at": self.moment(at), **plan.ids, "status": status}
        if status is FAILED:
            how["error"] = ErrorInfo(type="SubplanFailed", message=error or "")
            how["reason"] = Reason.STEP_FAILED
        self.events += (
            StepFinished(**how, step_id=plan.step, result="done" if status is OK else None),
            PlanFinished(**how, summary="done" if status is OK else None),
        )

    def think(
        self,
        plan: Plan,
        at: tuple[float, float],
        model: str,
        tokens: tuple[int, int],
        cost: str,
        *chosen: tuple[str, str],
        position: int = 0,
        sub_plans: bool = False,
        queued: bool = False,
    ) -> list[Call]:
        """Let an agent think, and return the calls that it chose: each a tool and arguments."""
        think_act = self.new_id()
        ids = {**plan.ids, "step_id": plan.step, "think_act_id": think_act}
        calls = [Call(self.new_id(), plan, ids) for _ in chosen]
        began, ended = at
        self.events += (
            ThoughtStarted(at=self.moment(began), **ids, position=position, requested_model=model),
            ThoughtRecorded(
                at=self.moment(ended),
                **ids,
                status=OK,
                thought="I look." if chosen else "All is said.",
                model=model,
                input_tokens=tokens[0],
                output_tokens=tokens[1],
                cost_usd=Decimal(cost),
                tool_calls=tuple(
                    ChosenToolCall(
                        tool_call_id=call.id,
                        name=name,
                        arguments=arguments,
                        provider_call_id=f"call_{number}",
                        tool_type="SUBPLAN" if sub_plans else "STATELESS",
                        status=Status.PENDING if queued else Status.RUNNING,
                    )
                    for number, (call, (name, arguments)) in enumerate(
                        zip(calls, chosen, strict=True)
                    )
                ),
            ),
        )
        return calls

    def attempt(self, call: Call, at: float, name: str, number: int) -> None:
        """Try a call once more."""
        self.events.append(
            ToolCallStarted(
                at=self.moment(at), **call.links, tool_call_id=call.id, name=name, attempt=number
            )
        )

    def finish(
        self,
        call: Call,
        at: float,
        status: EndingStatus = OK,
        reason: Reason | None = None,
        error: tuple[str, str] | None = None,
        **said: Any,
    ) -> None:
        """End a call."""
        if status is OK:
            said.setdefault("result", '{"ok":true}')
        if error is not None:
            said["error"] = ErrorInfo(type=error[0], message=error[1])
        self.events.append(
            ToolCallFinished(
                at=self.moment(at),
                **call.links,
                tool_call_id=call.id,
                status=status,
                reason=reason,
                **said,
            )
        )
