"""What a write to Postgres meets: what cannot be stored, and writers in each other's way."""

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
"""What something that was written is to blame for; a part of the write may succeed by itself."""

COLLISIONS = (errors.DeadlockDetected, errors.SerializationFailure)


class PartlyWritten(StoreUnavailable):
    """A part of the store does not answer. Check that every worker runs and try again."""

    def __init__(self, written: Set[int], refused: list[Refusal]) -> None:
        """Say what of a group was written all the same.

        Args:
            written: The places of what was written, or refused for good.
            refused: What was refused of it.
        """
        super().__init__()
        self.written = written
        self.refused = refused


Item = TypeVar("Item")
Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Numbered = tuple[int, Item]
"""Something that is written, with its index."""


async def write_storable(
    items: list[Numbered[Item]],
    word: str,
    write: Callable[[list[Numbered[Item]]], Awaitable[list[Refusal]]],
) -> list[Refusal]:
    """Write the items that the database can store, and return the refusals.

    Args:
        items: The items.
        word: A word for an item, such as `event`, for messages.
        write: Writes all or nothing, and returns the refusals.
    """
    if not items:
        return []
    try:
        return await write(items)
    except UNSTORABLE as error:
        if len(items) == 1:
            return [Refusal(items[0][0], "not_storable", _why_unstorable(error, word))]
    # Some item is not storable: halve until it stands alone.
    middle = len(items) // 2
    halves = (items[:middle], items[middle:])
    return [each for half in halves for each in await write_storable(half, word, write)]


def _why_unstorable(error: Exception, word: str) -> str:
    """Return a sentence that quotes nothing of what was written: it may hold secrets.

    Args:
        error: One of `UNSTORABLE`.
        word: A word for the item.
    """
    constraint = error.diag.constraint_name if isinstance(error, errors.Error) else None
    rule = f" ({constraint})" if constraint else ""
    return f"The database cannot hold what the {word} says: {type(error).__name__}{rule}."


async def outlasting_collisions(
    transact: Callable[Given, Awaitable[Answer]], *given: Given.args, **named: Given.kwargs
) -> Answer:
    """Return what a transaction returns, which is repeated while it loses against another one."""
    try:
        return await transact(*given, **named)
    except COLLISIONS:  # seldom: what repeats it costs as much as a small write
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(COLLISIONS),
            stop=stop_after_attempt(8),
            wait=wait_random_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )
        return await retrying(transact, *given, **named)
