"""Plan templates: filled with arguments, and checked when they are defined."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from tests.runtime.reviews import review_template
from tracer.runtime import StepTemplate, subplan_tool


class Period(BaseModel):
    days: int = Field(ge=1, description="How many.")
    note: str | None = None


def test_plan_template_is_filled_with_arguments_as_text() -> None:
    template = review_template(
        parameters=Period,
        title="Last {days} days",
        steps=(StepTemplate("Look at {days} days, {{really}}, note: {note}."),),
    )
    opener = subplan_tool(template)

    plan = template.filled(opener.checked({"days": "7", "note": "{days} {0.__class__}"}))

    assert plan.title == "Last 7 days"
    assert plan.steps[0].request == "Look at 7 days, {really}, note: {days} {0.__class__}."
    assert template.filled(opener.checked({"days": 1})).steps[0].request.endswith("note: none.")
    assert opener.parameters["additionalProperties"] is False
    assert opener.parameters["properties"]["days"]["description"] == "How many."
    with pytest.raises(Exception, match="days: Input should be greater"):
        opener.checked({"days": 0})
    with pytest.raises(Exception, match="x: Extra inputs"):
        opener.checked({"days": 1, "x": 1})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": ()}, "no steps"),
        ({"steps": (StepTemplate("{month}"),)}, "no parameter for the placeholder {month}"),
        ({"title": "{week.real}"}, "placeholder {week.real}"),
        ({"title": "{week!r}"}, "placeholder {week!r}"),
        ({"title": "{week:>10}"}, "placeholder {week:>10}"),
    ],
)
def test_plan_template_with_unknown_placeholder_is_rejected_at_definition(
    wrong: Any, said: str
) -> None:
    with pytest.raises(ValueError, match="review") as caught:
        review_template(**wrong)

    assert said in str(caught.value)
