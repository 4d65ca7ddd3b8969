"""Plans: steps for agents, either written by hand or made from a template."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tracer.tools.call.budget import BudgetLimits
from tracer.tools.definition.arguments import (
    Parameter,
    Parameters,
    parameters_from_model,
    parameters_from_types,
)
from tracer.tools.definition.results import result_text


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: a request to an agent."""

    request: str
    agent: str | None = None
    """The agent's name. None: the application's default agent."""


@dataclass(frozen=True, slots=True)
class PlanSteps:
    """Steps that are carried out in order."""

    title: str
    steps: tuple[PlanStep, ...]
    continue_on_failure: bool = False
    """Whether the steps after a failed step are carried out. If so, the plan succeeds if its last
    step does. Otherwise the plan fails with the first step that fails."""


@dataclass(frozen=True, slots=True)
class StepTemplate:
    """A step whose request has `{placeholders}` for the template's parameters."""

    request: str
    agent: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanTemplate:
    """A plan with parameters, which `subplan_tool` offers to models as a tool."""

    name: str
    """The name for models and in records."""
    description: str
    """A description for the model."""
    steps: tuple[StepTemplate, ...]
    title: str | None = None
    """The title of the plans, with placeholders; by default the name."""
    parameters: type[BaseModel] | Mapping[str, Any] | None = None
    """The parameters: a pydantic model, or types by name."""
    version: str | None = None
    timeout: float | None = None
    """After how many seconds a plan of this template times out."""
    budget: BudgetLimits | None = None
    """The budget of a plan of this template. The budget of the opening plan applies, too."""
    continue_on_failure: bool = False

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError(f"The plan template {self.name!r} has no steps. Add at least one.")
        known = set(self.typed_parameters().names.values())
        for text in (self.title or "", *(step.request for step in self.steps)):
            for placeholder in _placeholders(text):
                if placeholder not in known:
                    raise ValueError(
                        f"The plan template {self.name!r} has no parameter for the placeholder "
                        f"{{{placeholder}}}. Add it to `parameters`, or write {{{{ and }}}} for "
                        "literal braces."
                    )

    def typed_parameters(self) -> Parameters:
        """Return the parameters with their types.

        Raises:
            RegistrationError: A type cannot be read from JSON.
        """
        if isinstance(self.parameters, type):
            return parameters_from_model(self.name, self.parameters)
        types = {name: Parameter(kind) for name, kind in (self.parameters or {}).items()}
        return parameters_from_types(self.name, types)

    def filled(self, arguments: Mapping[str, Any]) -> PlanSteps:
        """Return the plan for some arguments.

        Args:
            arguments: A value for each parameter. Braces in the values are literal.
        """
        texts = {name: _in_words(value) for name, value in arguments.items()}
        return PlanSteps(
            title=self.title.format_map(texts) if self.title else self.name,
            steps=tuple(
                PlanStep(step.request.format_map(texts), step.agent) for step in self.steps
            ),
            continue_on_failure=self.continue_on_failure,
        )


def _in_words(value: Any) -> str:
    """Format a value for use in a sentence. Strings and times have no quotes."""
    if value is None:
        return "none"
    text = result_text(value)
    if isinstance(value, str) or not text.startswith('"'):
        return text
    return str(json.loads(text))


def _placeholders(text: str) -> list[str]:
    """Return a text's placeholders as written.

    Conversions such as `!r` are included, so that the caller can reject them.
    """
    return [
        name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        for _, name, spec, conversion in string.Formatter().parse(text)
        if name is not None
    ]
