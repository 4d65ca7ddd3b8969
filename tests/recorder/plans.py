"""Events to record."""

from tracer.recorder import Recorder
from tracer.records import new_id
from tracer.records.events import PlanStarted


def plan_started(recorder: Recorder, title: str = "Look after health") -> PlanStarted:
    """Return the start of a run of its own."""
    plan_id = new_id()
    return PlanStarted(**recorder.stamp(), root_plan_id=plan_id, plan_id=plan_id, title=title)


def plans_started(recorder: Recorder, number: int) -> list[PlanStarted]:
    return [plan_started(recorder, f"Plan {index}") for index in range(number)]
