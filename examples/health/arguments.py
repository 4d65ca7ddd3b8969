"""The parameters that several tools have: their types, and how times are read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from tracer import Hidden, ToolError, UserId

Clock = Callable[[], datetime]
"""Returns the present time, in UTC."""

SLACK = timedelta(minutes=5)
"""How far a patient's clock may run ahead of ours."""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


def storable_text(text: str) -> str:
    """Return a text as the diary keeps it: without the blanks around it.

    Raises:
        ValueError: Nothing is left, or it holds what Postgres cannot store.
    """
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds NUL or half a surrogate pair, which the diary cannot keep")
    return text


Caller = Annotated[UserId, Hidden(aliases=("patient_id",))]
"""Whose diary it is. The runtime fills it: a model neither sees nor gives it, also under the name
that it had when models did."""

Name = Annotated[str, Field(max_length=200), AfterValidator(storable_text)]
Notes = Annotated[str, Field(max_length=2000), AfterValidator(storable_text)]
RecordId = Annotated[int, Field(ge=1, lt=2**63)]
Limit = Annotated[int, Field(ge=1, le=100)]
Offset = Annotated[int, Field(ge=0, le=1_000_000)]


def read_moment(name: str, text: str) -> datetime:
    """Return the moment that an argument names.

    Args:
        name: The argument's name, for the error.
        text: An ISO 8601 time with its offset, such as `2026-03-02T08:30:00+08:00`.

    Raises:
        ToolError: It is no such time, or lies before 1900.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            raise ToolError(
                f"{name} {text!r} has no offset: write it like 2026-03-02T08:30:00+08:00, "
                "or with Z for UTC."
            )
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ToolError(
            f"{name} {text!r} is no ISO 8601 time: write it like 2026-03-02T08:30:00+08:00."
        ) from error
    if moment < EARLIEST:
        raise ToolError(f"{name} {text!r} lies before 1900: check the year.")
    return moment


def read_past_moment(name: str, text: str, clock: Clock) -> datetime:
    """Return the moment that an argument names, which has to have come.

    Args:
        name: The argument's name, for the error.
        text: The time as the model gave it.
        clock: Says what the present is.

    Raises:
        ToolError: It is no time, or lies in the future or before 1900.
    """
    now = clock()
    moment = read_moment(name, text)
    if moment > now + SLACK:
        raise ToolError(
            f"{name} {text!r} lies in the future (it is {now.isoformat(timespec='seconds')} now): "
            "give the time when it was."
        )
    return moment


def read_time(name: str, text: str | None, clock: Clock) -> datetime:
    """Return when an entry is for: the time given, else the present.

    Raises:
        ToolError: See `read_past_moment`.
    """
    return clock() if text is None else read_past_moment(name, text, clock)


def read_since(text: str | None) -> datetime | None:
    """Return the moment from which a query looks; None looks at everything.

    Raises:
        ToolError: It is no time, or lies before 1900.
    """
    return None if text is None else read_moment("since", text)
