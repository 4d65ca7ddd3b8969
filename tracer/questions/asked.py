"""The questions that people and agents ask, with their arguments.

REST, commands and MCP take the names, the arguments and the descriptions from here.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tracer.errors import BadRequest
from tracer.questions.text import LEAST_BUDGET
from tracer.records.pages import RunOrder

Reference = Annotated[
    str,
    Field(min_length=1, max_length=200, description="A handle such as r0123456789, or an id."),
]

Since = Annotated[str | None, Field(description="30m, 24h, 7d or RFC 3339.")]


class Asked(BaseModel):
    """A question."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, alias_generator=to_camel
    )

    command_budget: ClassVar[int] = 10_000
    """The budget of the command, which people read."""

    budget: Annotated[
        int, Field(ge=LEAST_BUDGET, le=100_000, description="The most tokens of the answer.")
    ] = 1_000


class List(Asked):
    """List runs, latest first: one line each with question, answer, or where its failure began."""

    q: Annotated[str | None, Field(description="Words in the run.")] = None
    status: Annotated[str | None, Field(description="failed, running, abandoned, succeeded …")] = (
        None
    )
    agent: Annotated[str | None, Field(description="An agent that took part.")] = None
    user: Annotated[str | None, Field(description="For whom the run was made.")] = None
    session: Annotated[str | None, Field(description="The conversation's id.")] = None
    tool: Annotated[str | None, Field(description="A tool that was called.")] = None
    origin: Annotated[
        str | None, Field(description="The tool, model or agent where its failure began.")
    ] = None
    error_type: str | None = None
    model: str | None = None
    min_cost: Annotated[
        float | None, Field(ge=0, allow_inf_nan=False, description="In US dollars.")
    ] = None
    since: Since = None
    until: Since = None
    sort: Annotated[
        RunOrder, Field(description="-start, -duration, -cost, -tokens, or without a minus.")
    ] = RunOrder.LATEST
    limit: Annotated[int, Field(ge=1, le=200)] = 20


class Show(Asked):
    """Outline a run, or the part below one record: a line for each record, folded to the budget.

    Failures, open work and large items come first.
    """

    command_budget = 1_500

    run: Reference


class Why(Asked):
    """Explain why a run failed, hangs, was abandoned or was slow. Start here for any failure.

    Returns the record where it began with its full id, its error, the calls that led there, and
    the last message to the model.
    """

    command_budget = 1_500

    run: Annotated[
        Reference | None, Field(description="A run or record; the latest failed run if omitted.")
    ] = None


class Record(Asked):
    """Return one record whole, or a slice of one of its payloads."""

    id: Reference
    pointer: Annotated[
        str,
        Field(
            pattern="^(/.*)?$",
            description="A JSON pointer into the record, such as /result/items/0.",
        ),
    ] = ""
    start: Annotated[int, Field(ge=0, alias="from", description="The first character.")] = 0
    length: Annotated[int | None, Field(ge=1, description="Of the slice, in characters.")] = None


class Diff(Asked):
    """Compare two runs: the first difference, then all others, then the totals."""

    a: Reference
    b: Reference


class Stats(Asked):
    """Return statistics: calls and failures by tool, or spend by model, agent, user or day."""

    by: Literal["tool", "model", "agent", "user", "day"] = "tool"
    since: Since = "7d"
    until: Since = None


QUESTIONS: dict[str, type[Asked]] = {
    "why": Why,
    "list": List,
    "show": Show,
    "record": Record,
    "diff": Diff,
    "stats": Stats,
}
"""The questions by name, the most useful first."""

_AGO = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment_of(text: str | None, now: datetime) -> datetime | None:
    """Return a time that is written as an age, such as `7d` before `now`, or as RFC 3339.

    Raises:
        BadRequest: The text has neither form.
    """
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if ago := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    raise BadRequest("A time is 30m, 24h, 7d, 2w, or RFC 3339 such as 2026-11-21T09:00:00Z.")


def description(question: type[Asked]) -> str:
    """Return the purpose of a question, as text for people and models."""
    return " ".join((question.__doc__ or "").split())
