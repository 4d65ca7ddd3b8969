"""Runs of every shape, made by Hypothesis: parallel calls, batches, sub-plans, hand-offs, retries,
queued calls, late ends, conflicting starts and endings, and events that never came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tracer.records import Status, sequential_ids
from tracer.records.events import (
    ChosenToolCall,
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

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_DEPTH = 2

# Text whose byte order, case or escape could go wrong somewhere.
WORDS = ("", "a", "B", "é", "字", "\0", "\ud800", "␛0000", "␛", "🧪", '{"x":1}', "[1", "%_\\", "'")

words = st.sampled_from(WORDS) | st.none()
moments = st.integers(0, 5).map(lambda n: START + timedelta(milliseconds=n))
endings = st.sampled_from([Status.CANCELLED, Status.FAILED, Status.SUCCEEDED])


@dataclass
class _Telling:
    """One run as it is being made up."""

    draw: st.DrawFn
    root: UUID
    mint: Any
    recorders: list[UUID]
    events: list[Event] = field(default_factory=list)
    budget: int = 30
    """How many more choices of shape may be made: a run that grows on and on teaches nothing."""

    def at(self) -> dict[str, Any]:
        recorder = self.draw(st.sampled_from([None, *self.recorders]))
        return {"at": self.draw(moments), "root_plan_id": self.root, "recorder_id": recorder}

    def ending(self) -> dict[str, Any]:
        failed = self.draw(st.booleans())
        error = ErrorInfo(type="E", message=self.word() or "", stack=self.word())
        return {
            "status": self.draw(endings),
            "reason": self.draw(st.sampled_from([None, "timed_out", "tool_error"])),
            "error": error if failed else None,
        }

    def word(self) -> str | None:
        return self.draw(words)

    def names(self) -> tuple[str, ...]:
        return tuple(self.draw(st.lists(st.sampled_from(WORDS), max_size=2)))

    def some(self, most: int) -> range:
        self.budget -= 1
        return range(self.draw(st.integers(0, most)) if self.budget > 0 else 0)

    def seldom(self) -> bool:
        self.budget -= 1
        return self.budget > 0 and self.draw(st.integers(0, 3)) == 0

    def maybe(self, event: Event) -> None:
        """Tell an event; or seldom not, and its record stays a placeholder or open."""
        if self.draw(st.integers(0, 7)):
            self.events.append(event)

    def plan(self, plan_id: UUID, depth: int, **opener: Any) -> None:
        steps = [self.mint() for _ in self.some(2)]
        ids: dict[str, Any] = {"plan_id": plan_id}
        for _ in range(self.draw(st.sampled_from([1, 1, 1, 2]))):
            planned = (PlannedStep(step_id=s, agent_name=self.word()) for s in steps)
            root_only: dict[str, Any] = {
                "service_name": self.draw(st.sampled_from([None, "a", "b\0"])),
                "service_version": self.draw(st.sampled_from([None, "1"])),
                "deployment_environment": self.draw(st.sampled_from([None, "é"])),
                "tags": tuple(self.draw(st.lists(st.sampled_from("ab\0"), max_size=2))),
                "session_id": self.draw(st.sampled_from([None, "a", "\0"])),
                "subject": self.draw(st.sampled_from([None, "", "é"])),
            }
            self.maybe(
                PlanStarted(
                    **self.at(),
                    **ids,
                    **opener,
                    **({} if opener else root_only),
                    title=self.word(),
                    user_request=self.word(),
                    agent_name=self.word(),
                    depth=depth,
                    steps=tuple(planned),
                )
            )
        reached = [step for step in steps if self.draw(st.integers(0, 3))]
        for step_id in reached:
            self.step({**ids, "step_id": step_id}, depth)
        for _ in self.some(2):
            self.maybe(
                PlanFinished(
                    **self.at(),
                    **ids,
                    **self.ending(),
                    summary=self.word(),
                    not_reached_step_ids=tuple(s for s in steps if s not in reached),
                )
            )

    def step(self, ids: dict[str, Any], depth: int) -> None:
        self.maybe(StepStarted(**self.at(), **ids, agent_name=self.word(), request=self.word()))
        for position in self.some(2):
            self.thought(ids, position, depth)
        for position in self.some(1):
            self.call(ids, position, depth)
        if depth < MAX_DEPTH and self.seldom():
            opener = {"parent_plan_id": ids["plan_id"], "opened_by_step_id": ids["step_id"]}
            self.plan(self.mint(), depth + 1, **opener)
        for _ in self.some(2):
            self.maybe(StepFinished(**self.at(), **ids, **self.ending(), result=self.word()))

    def thought(self, ids: dict[str, Any], position: int, depth: int) -> None:
        ids = {**ids, "think_act_id": self.mint()}
        self.maybe(ThoughtStarted(**self.at(), **ids, position=position, messages="[]"))
        calls = [self.mint() for _ in self.some(3)]
        chosen = tuple(
            ChosenToolCall(
                tool_call_id=call,
                name=f"tool {call.int % 3}",
                arguments=self.word(),
                provider_call_id=self.draw(st.sampled_from([None, "", "call_0"])),
                status=self.draw(st.sampled_from([Status.RUNNING, Status.PENDING])),
            )
            for call in calls
        )
        usage: dict[str, Any] = {
            "input_tokens": self.draw(st.integers(0, 9) | st.none()),
            "cost_usd": "0.10",
        }
        self.maybe(
            ThoughtRecorded(
                **self.at(),
                **ids,
                **self.ending(),
                **usage,
                thought=self.word(),
                tool_calls=chosen,
            )
        )
        for position_, call in enumerate(calls):
            self.call(ids, position_, depth, call)

    def call(
        self, ids: dict[str, Any], position: int, depth: int, call: UUID | None = None
    ) -> None:
        ids = {**ids, "tool_call_id": call or self.mint()}
        for attempt in self.some(2):
            self.maybe(
                ToolCallStarted(
                    **self.at(),
                    **ids,
                    name=f"tool {ids['tool_call_id'].int % 3}",
                    arguments=self.word(),
                    position=position,
                    attempt=attempt + 1,
                    effective_arguments=self.word(),
                    forged_arguments=self.names(),
                )
            )
        if depth < MAX_DEPTH and self.seldom():
            opener = {"parent_plan_id": ids["plan_id"], "tool_call_id": ids["tool_call_id"]}
            self.plan(self.mint(), depth + 1, **opener)
        for _ in self.some(2):
            self.maybe(
                ToolCallFinished(
                    **self.at(),
                    **ids,
                    **self.ending(),
                    result=self.word(),
                    forged_arguments=self.names(),
                    short_circuited_by=self.word(),
                    state_changes=self.draw(st.sampled_from([None, "[]", '["\\u0000 ␛0000"]'])),
                    still_running=self.draw(st.sampled_from([None, None, False, True])),
                )
            )
        if "parent_tool_call_id" not in ids and self.seldom():
            item = {**ids, "parent_tool_call_id": ids["tool_call_id"]}
            self.call(item, 0, depth)


@st.composite
def forests(draw: st.DrawFn, runs: int = 2) -> list[Event]:
    """Return the events of up to `runs` runs, in the order of their telling."""
    mint = sequential_ids()
    recorders = [mint(), mint()]
    events: list[Event] = []
    for _ in range(draw(st.integers(1, runs))):
        root = mint()
        telling = _Telling(draw, root, mint, recorders)
        telling.plan(root, 0)
        events += telling.events
    return events


Batches = list[list[Event]]


@st.composite
def retold_forests(draw: st.DrawFn) -> tuple[list[Event], Batches]:
    """Return a forest's events, and batches in which each comes at least once, in any order."""
    events = draw(forests())
    again = draw(st.lists(st.sampled_from(events), max_size=5)) if events else []
    batches: Batches = [[]]
    for event in draw(st.permutations([*events, *again])):
        if batches[-1] and draw(st.integers(0, 3)) == 0:
            batches.append([])
        batches[-1].append(event)
    return events, batches
