"""Plans: steps for agents, given as they are or made from a template."""

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
    """What one agent is asked to do."""

    request: str
    agent: str | None = None
    """The agent's name; None: the application's default agent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps to be carried out in order."""

    title: str
    steps: tuple[PlanStep, ...]
    continue_on_failure: bool = False
    """Whether the steps after a failed one are carried out too. Such a plan succeeds when its
    last step does; any other fails with its first failing step."""


@dataclass(frozen=True, slots=True)
class StepTemplate:
    """A step whose request has `{placeholders}` for the template's parameters."""

    request: str
    agent: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanTemplate:
    """A plan to be filled in, which `subplan_tool` offers to models as a tool."""

    name: str
    """What models call it, and what the records know it by."""
    description: str
    """What it does, in words for the model."""
    steps: tuple[StepTemplate, ...]
    title: str | None = None
    """The plans' title, with placeholders; the name unless given."""
    parameters: type[BaseModel] | Mapping[str, Any] | None = None
    """What can be filled in: a pydantic model, or types by name."""
    version: str | None = None
    timeout: float | None = None
    """After how many seconds such a plan is over."""
    budget: BudgetLimits | None = None
    """What such a plan may use up, within what is left to the plan that opens it."""
    continue_on_failure: bool = False

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError(f"The plan template {self.name!r} has no steps: give it some.")
        known = set(self.typed_parameters().names.values())
        for text in (self.title or "", *(step.request for step in self.steps)):
            for placeholder in _placeholders(text):
                if placeholder not in known:
                    raise ValueError(
                        f"The plan template {self.name!r} has no parameter for the placeholder "
                        f"{{{placeholder}}} (write {{{{ and }}}} for braces that are meant)."
                    )

    def typed_parameters(self) -> Parameters:
        """Return what can be filled in.

        Raises:
            RegistrationError: A type cannot be filled from JSON.
        """
        if isinstance(self.parameters, type):
            return parameters_from_model(self.name, self.parameters)
        types = {name: Parameter(kind) for name, kind in (self.parameters or {}).items()}
        return parameters_from_types(self.name, types)

    def filled(self, arguments: Mapping[str, Any]) -> Plan:
        """Return the plan for some arguments.

        Args:
            arguments: A value for each parameter. Their text is put in as it is: braces in it
                mean nothing.
        """
        texts = {name: _in_words(value) for name, value in arguments.items()}
        return Plan(
            title=self.title.format_map(texts) if self.title else self.name,
            steps=tuple(
                PlanStep(step.request.format_map(texts), step.agent) for step in self.steps
            ),
            continue_on_failure=self.continue_on_failure,
        )


def _in_words(value: Any) -> str:
    """Return a value as it stands in a sentence: text and times without quotes."""
    if value is None:
        return "none"
    text = result_text(value)
    if isinstance(value, str) or not text.startswith('"'):
        return text
    return str(json.loads(text))


def _placeholders(text: str) -> list[str]:
    """Return a text's placeholders as they stand there: only plain names can be filled in."""
    return [
        name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        for _, name, spec, conversion in string.Formatter().parse(text)
        if name is not None
    ]
