"""A plan template that several tests open sub-plans from."""

from typing import Any

from tracer.runtime import PlanTemplate, StepTemplate


def review_template(**more: Any) -> PlanTemplate:
    fields = {
        "name": "review",
        "description": "Reviews a week.",
        "parameters": {"week": int},
        "steps": (StepTemplate("Review week {week}."),),
        **more,
    }
    return PlanTemplate(**fields)
