"""Runs as a recorder writes them, for tests that read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.stepping import stepping_clock
from tracer.records import IdSource, Reason, Status, new_id
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
)

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@dataclass
class SampleRun:
    """A root plan whose one round calls a tool that fails and a tool for each sub-plan."""

    root: UUID
    step: UUID
    think_act: UUID
    failed_call: UUID
    opening_calls: list[UUID] = field(default_factory=list)
    sub_plans: list[UUID] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def sample_run(
    sub_plans: int = 2,
    title: str = "Weekly review",
    finished: bool = True,
    ids: IdSource = new_id,
    start: datetime = START,
    recorder: UUID | None = None,
) -> SampleRun:
    """Return a run and its events in the order in which they happened.

    Args:
        sub_plans: How many calls of the round open a sub-plan each.
        title: The root plan's title.
        finished: Whether the root plan, its step and its opening calls have ended.
        ids: Where its ids come from.
        start: When it starts.
        recorder: The recorder that its events name, which promises heartbeats.
    """
    run = SampleRun(root=ids(), step=ids(), think_act=ids(), failed_call=ids())
    clock = stepping_clock(start, timedelta(milliseconds=10))
    run_ids: dict[str, Any] = {
        "root_plan_id": run.root,
        "plan_id": run.root,
        "recorder_id": recorder,
    }
    say = run.events.append
    say(
        PlanStarted(
            at=clock(),
            **run_ids,
            title=title,
            user_request="How was my week?",
            agent_name="nurse",
            tags=("sample",),
            steps=(PlannedStep(step_id=run.step, agent_name="nurse", request="Review"),),
        )
    )
    say(StepStarted(at=clock(), **run_ids, step_id=run.step, position=0, agent_name="nurse"))
    say(
        ThoughtStarted(
            at=clock(),
            **run_ids,
            step_id=run.step,
            think_act_id=run.think_act,
            position=0,
            messages='[{"role":"user","content":"Review"}]',
        )
    )
    run.opening_calls = [ids() for _ in range(sub_plans)]
    chosen = [
        ChosenToolCall(
            tool_call_id=run.failed_call, name="measure", arguments="{}", provider_call_id="call_0"
        ),
        *(
            ChosenToolCall(
                tool_call_id=call,
                name="check",
                arguments=f'{{"number":{number}}}',
                provider_call_id="call_0",
                tool_type="SUBPLAN",
            )
            for number, call in enumerate(run.opening_calls)
        ),
    ]
    say(
        ThoughtRecorded(
            at=clock(),
            **run_ids,
            step_id=run.step,
            think_act_id=run.think_act,
            status=Status.SUCCEEDED,
            thought="I check everything at once.",
            model="scripted",
            input_tokens=100,
            output_tokens=20,
            tool_calls=tuple(chosen),
        )
    )
    links: dict[str, Any] = {**run_ids, "step_id": run.step, "think_act_id": run.think_act}
    say(
        ToolCallFinished(
            at=clock(),
            **links,
            tool_call_id=run.failed_call,
            status=Status.FAILED,
            reason=Reason.TOOL_ERROR,
            error=ErrorInfo(type="ValueError", message="the cuff is loose", stack="…"),
        )
    )
    for number, call in enumerate(run.opening_calls):
        sub_plan = ids()
        run.sub_plans.append(sub_plan)
        below: dict[str, Any] = {**run_ids, "plan_id": sub_plan}
        say(
            PlanStarted(
                at=clock(),
                **below,
                parent_plan_id=run.root,
                tool_call_id=call,
                title=f"Check {number}",
                depth=1,
                agent_name="pharmacist",
            )
        )
        say(PlanFinished(at=clock(), **below, status=Status.SUCCEEDED, summary="well"))
        if finished:
            say(
                ToolCallFinished(
                    at=clock(), **links, tool_call_id=call, status=Status.SUCCEEDED, result="well"
                )
            )
    if finished:
        say(
            StepFinished(
                at=clock(), **run_ids, step_id=run.step, status=Status.SUCCEEDED, result="fine"
            )
        )
        say(PlanFinished(at=clock(), **run_ids, status=Status.SUCCEEDED, summary="All fine"))
    return run
