"""The planner: an agent that turns a request into the steps of a plan."""

from __future__ import annotations

import re
from collections.abc import Collection

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tracer.errors import PlanningError
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.instructions import without_placeholders
from tracer.runtime.plan import PlanStep

PLANNER = "planner"
"""The planner's name in the records."""

MAX_STEPS = 50
"""A longer plan is rejected, because a model that writes one is probably in a loop."""

_INSTRUCTIONS = """\
Turn the user's request into a plan: the fewest steps that fulfil it, in order. Each step goes to
one agent. The agent sees the step's request and the results of earlier steps, but not the user's
request, so put into the step whatever the agent needs to know. The last step's answer goes to the
user.

The agents:
{agents}

Answer with one JSON object and nothing else:
{{"steps": [{{"agent": "NAME", "request": "WHAT TO DO"}}]}}"""

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class _AnswerStep(BaseModel):
    model_config = ConfigDict(extra="ignore")

    request: str = Field(min_length=1)
    agent: str | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    steps: list[_AnswerStep] = Field(min_length=1, max_length=MAX_STEPS)


def planner_agent(application: Application) -> Agent:
    """Return the agent that makes plans for an application; `read_plan` reads its answer."""
    agents = "\n".join(
        # Without the values of placeholders: the planner must not learn who the caller is.
        f"- {each.name}: {each.description or without_placeholders(each.instructions)}"
        for each in application.agents
    )
    instructions = _INSTRUCTIONS.format(agents=agents)
    return Agent(
        name=PLANNER,
        instructions=f"{instructions}\n\n{application.planner_instructions}".strip(),
        max_rounds=3,
    )


def read_plan(answer: str, agents: Collection[str]) -> tuple[PlanStep, ...]:
    """Return the steps in a planner's answer.

    Args:
        answer: JSON, with or without a Markdown code block around it.
        agents: The names of the agents that steps may be assigned to.

    Raises:
        PlanningError: The answer is not a plan, or names an unknown agent. The message is for the
            planner.
    """
    fenced = _FENCED.search(answer)
    try:
        plan = _Answer.model_validate_json(fenced[1] if fenced else answer)
    except ValidationError as error:
        details = error.errors(include_input=False, include_context=False, include_url=False)
        where = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}" for each in details[:5]
        )
        raise PlanningError(
            f'This is not a valid plan ({where}). Answer with one JSON object {{"steps": […]}} and '
            "nothing else."
        ) from None
    for step in plan.steps:
        if step.agent is not None and step.agent not in agents:
            raise PlanningError(
                f"There is no agent {step.agent!r}. Plan again, and use only the agents "
                f"{', '.join(sorted(agents))}."
            )
    return tuple(PlanStep(step.request, step.agent) for step in plan.steps)
