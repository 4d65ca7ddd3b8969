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
"""The name that the planner has in the records."""

MAX_STEPS = 50
"""A longer plan is taken for a model that has lost itself."""

_INSTRUCTIONS = """\
Turn the user's request into a plan: the fewest steps that fulfil it, in order. Each step goes to
one agent, who sees the step's request and what the steps before it came to, but not the user's
words: put into it whatever the agent needs to know. The last step's answer goes to the user.

The agents:
{agents}

Answer with one JSON object and nothing else:
{{"steps": [{{"agent": "NAME", "request": "WHAT TO DO"}}]}}"""

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class _Step(BaseModel):
    model_config = ConfigDict(extra="ignore")

    request: str = Field(min_length=1)
    agent: str | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    steps: list[_Step] = Field(min_length=1, max_length=MAX_STEPS)


def planner_agent(application: Application) -> Agent:
    """Return the agent that plans for an application; `read_plan` takes its final answer."""
    agents = "\n".join(
        # Placeholders are the agent's own: the planner need not know who the caller is.
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
    """Return the steps that a planner's answer holds.

    Args:
        answer: JSON, by itself or in a code block, as models like to write it.
        agents: The names that steps may be given to.

    Raises:
        PlanningError: It is no plan, or names an agent that there is not; for the planner to read.
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
            f'That is no plan ({where}). Answer with one JSON object {{"steps": […]}} and nothing '
            "else."
        ) from None
    for step in plan.steps:
        if step.agent is not None and step.agent not in agents:
            raise PlanningError(
                f"There is no agent {step.agent!r}. Plan again with: {', '.join(sorted(agents))}."
            )
    return tuple(PlanStep(step.request, step.agent) for step in plan.steps)
