"""The questions that people and agents ask, with their arguments.

REST, commands and MCP take the names, the arguments and the descriptions from here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tracer.questions.text import LEAST_BUDGET

Reference = Annotated[
    str,
    Field(min_length=1, max_length=200, description="A handle such as r0123456789, or an id."),
]


class Asked(BaseModel):
    """A question."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)

    budget: Annotated[
        int, Field(ge=LEAST_BUDGET, le=100_000, description="The most tokens of the answer.")
    ] = 1_000


class Show(Asked):
    """Outline a run, or what is below one record.

    One line for each record, folded to the budget: failures, open work and large items first.
    """

    run: Reference


class Why(Asked):
    """Explain why a run failed, hangs, was abandoned or was slow.

    Start here for any failure. Returns the record where it began with its full id, its error,
    the calls that led there, and what the model saw.
    """

    run: Annotated[
        Reference | None, Field(description="Of a run or record; the latest failed run if omitted.")
    ] = None


QUESTIONS: dict[str, type[Asked]] = {"why": Why, "show": Show}
"""The questions by name, the most useful first."""


def description(question: type[Asked]) -> str:
    """Return what a question is for, as text for people and models."""
    return " ".join((question.__doc__ or "").split())
