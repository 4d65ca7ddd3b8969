"""Errors of writes to Postgres: rows that cannot be stored, and conflicts with other writers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from typing import ParamSpec, TypeVar

import orjson
from psycopg import errors
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from tracer.errors import StoreUnavailable
from tracer.store import Refusal

UNSTORABLE = (
    errors.DataError,
    errors.IntegrityError,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    orjson.JSONEncodeError,
)
"""Errors that a written item causes. Other items of the write may be storable."""

CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)


class PartlyWritten(StoreUnavailable):
    """A part of the store does not answer. Check that every worker runs and try again."""

    def __init__(self, written: Set[int], refused: list[Refusal]) -> None:
        """Set the items of a batch that were written although others were not.

        Args:
            written: The indexes of items that were written or finally rejected.
            refused: The refusals of the rejected items.
        """
        super().__init__()
        self.written = written
        self.refused = refused


Item = TypeVar("Item")
Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Numbered = tuple[int, Item]
"""An item of a write, with its index."""


async def write_storable(
    items: list[Numbered[Item]],
    word: str,
    write: Callable[[list[Numbered[Item]]], Awaitable[list[Refusal]]],
) -> list[Refusal]:
    """Write the items that the database can store, and return the refusals.

    Args:
        items: The items.
        word: A word for an item, such as `event`, for messages.
        write: Writes all items that it receives, or none, and returns the refusals. If it fails
            because of an item, it is called again with smaller lists.
    """
    if not items:
        return []
    try:
        return await write(items)
    except UNSTORABLE as error:
        if len(items) == 1:
            return [Refusal(items[0][0], "not_storable", _why_unstorable(error, word))]
    # Some item is not storable: halve the list until that item is alone.
    middle = len(items) // 2
    halves = (items[:middle], items[middle:])
    return [each for half in halves for each in await write_storable(half, word, write)]


def _why_unstorable(error: Exception, word: str) -> str:
    """Return the message for an item that the database cannot store.

    The message does not quote the item, which may contain secrets.

    Args:
        error: One of `UNSTORABLE`.
        word: A word for the item.
    """
    constraint = error.diag.constraint_name if isinstance(error, errors.Error) else None
    rule = f" ({constraint})" if constraint else ""
    return f"The database cannot store the {word}: {type(error).__name__}{rule}."


async def retry_on_conflict(
    transact: Callable[Given, Awaitable[Answer]], *args: Given.args, **kwargs: Given.kwargs
) -> Answer:
    """Run a transaction, and repeat it if it fails because of a conflict with another one."""
    try:
        return await transact(*args, **kwargs)
    except CONFLICTS:  # not within tenacity, which costs as much as a small write
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(CONFLICTS),
            stop=stop_after_attempt(8),
            wait=wait_random_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )
        return await retrying(transact, *args, **kwargs)
