"""Types of the tools' common parameters, and functions that parse times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from tracer import Hidden, ToolError, UserId

Clock = Callable[[], datetime]
"""Returns the current time in UTC."""

SLACK = timedelta(minutes=5)
"""How far a patient's clock may run ahead of ours."""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


def storable_text(text: str) -> str:
    """Return a text without surrounding whitespace.

    Raises:
        ValueError: The result is empty, or contains characters that Postgres cannot store.
    """
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("contains NUL or half a surrogate pair, which the diary cannot store")
    return text


Caller = Annotated[UserId, Hidden(aliases=("patient_id",))]
"""The owner of the diary. The runtime fills it; models neither see nor supply it.

Models supplied it in older versions, as `patient_id`."""

Name = Annotated[str, Field(max_length=200), AfterValidator(storable_text)]
Notes = Annotated[str, Field(max_length=2000), AfterValidator(storable_text)]
RecordId = Annotated[int, Field(ge=1, lt=2**63)]
Limit = Annotated[int, Field(ge=1, le=100)]
Offset = Annotated[int, Field(ge=0, le=1_000_000)]


def read_moment(name: str, text: str) -> datetime:
    """Return the time in an argument.

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
    """Return the time in an argument, which must not be in the future.

    Args:
        name: The argument's name, for the error.
        text: The time, as the model wrote it.
        clock: Returns the current time.

    Raises:
        ToolError: It is no time, or lies in the future or before 1900.
    """
    now = clock()
    moment = read_moment(name, text)
    if moment > now + SLACK:
        raise ToolError(
            f"{name} {text!r} lies in the future (it is {now.isoformat(timespec='seconds')} now): "
            "write the time of the entry."
        )
    return moment


def read_time(name: str, text: str | None, clock: Clock) -> datetime:
    """Return the time of an entry: that of the argument, by default the current time.

    Raises:
        ToolError: See `read_past_moment`.
    """
    return clock() if text is None else read_past_moment(name, text, clock)


def read_since(text: str | None) -> datetime | None:
    """Return the earliest time of a query; None if it has no limit.

    Raises:
        ToolError: It is no time, or lies before 1900.
    """
    return None if text is None else read_moment("since", text)
