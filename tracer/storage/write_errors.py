"""What a write to Postgres meets: what cannot be stored, and writers in each other's way."""

from __future__ import annotations

import orjson
from psycopg import errors
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

UNSTORABLE = (
    errors.DataError,
    errors.IntegrityError,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    orjson.JSONEncodeError,
)
"""What something that was written is to blame for; a part of the write may succeed by itself."""

_COLLISIONS = (errors.DeadlockDetected, errors.SerializationFailure)


def why_unstorable(error: Exception, written: str) -> str:
    """Return a sentence that quotes nothing of what was written: it may hold secrets.

    Args:
        error: One of `UNSTORABLE`.
        written: What it was: "event" or "span".
    """
    constraint = error.diag.constraint_name if isinstance(error, errors.Error) else None
    rule = f" ({constraint})" if constraint else ""
    return f"The database cannot hold what the {written} says: {type(error).__name__}{rule}."


def retrying_collisions() -> AsyncRetrying:
    """Return what repeats a transaction that lost against another one."""
    return AsyncRetrying(
        retry=retry_if_exception_type(_COLLISIONS),
        stop=stop_after_attempt(8),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        reraise=True,
    )
