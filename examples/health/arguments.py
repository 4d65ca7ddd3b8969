"""The arguments that several tools take: types for their schemas, and how times are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from tracer.clock import Clock
from tracer.errors import ToolError

SLACK = timedelta(minutes=5)
"""How far a patient's clock may run ahead of ours."""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


def _storable(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds NUL or half a surrogate pair, which the diary cannot keep")
    return text


PatientId = Annotated[str, Field(max_length=64), AfterValidator(_storable)]
Name = Annotated[str, Field(max_length=200), AfterValidator(_storable)]
Notes = Annotated[str, Field(max_length=2000), AfterValidator(_storable)]
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


def read_record_time(text: str | None, clock: Clock) -> datetime:
    """Return when an entry is for: the time given, else the present.

    Args:
        text: The argument `record_time` as the model gave it.
        clock: Says what the present is.

    Raises:
        ToolError: It is no time, or lies in the future or before 1900.
    """
    now = clock()
    if text is None:
        return now
    moment = read_moment("record_time", text)
    if moment > now + SLACK:
        raise ToolError(
            f"record_time {text!r} lies in the future (it is {now.isoformat(timespec='seconds')} "
            "now): give the time of the event, or leave it out for now."
        )
    return moment


def read_since(text: str | None) -> datetime | None:
    """Return the moment from which a query looks; None looks at everything.

    Raises:
        ToolError: It is no time, or lies before 1900.
    """
    return None if text is None else read_moment("since", text)
