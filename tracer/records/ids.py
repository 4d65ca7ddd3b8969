"""Ids of records: UUIDv7 (RFC 9562), created by the process that records.

The call ids of model providers are never used as record ids, because they may repeat or be empty.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import count
from uuid import UUID

import uuid_utils.compat

IdSource = Callable[[], UUID]
"""A function that returns a new id at each call. Code that creates ids receives it as an argument,
so that tests can use predictable ids."""

DEFAULT_PROJECT_ID = 1
"""The project of an installation without configured projects."""

DEFAULT_PROJECT = "default"
"""The name of the default project."""


def new_id() -> UUID:
    """Return a new UUIDv7, which is unique across threads and processes. Later ids are greater."""
    return uuid_utils.compat.uuid7()


def sequential_ids() -> IdSource:
    """Return a function that returns ids with increasing numbers, for tests and examples.

    The ids are valid UUIDv7 with the time 0.
    """
    numbers = count(1)
    return lambda: UUID(int=(7 << 76) | (0b10 << 62) | next(numbers))


def span_id(tool_call_id: UUID) -> str:
    """Return the OpenTelemetry span id of a tool call. All attempts of the call have the same id.

    The id is a digest of the UUIDv7. A part of the UUID would not be unique, because UUIDs that are
    created in the same millisecond have nearly the same first half.
    """
    return sha256(tool_call_id.bytes).digest()[:8].hex()
