"""Ids: UUIDv7 (RFC 9562), minted by the runtime and by nobody else.

Provider call ids are never ids here: they repeat, collide and are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import count
from uuid import UUID

import uuid_utils.compat

IdSource = Callable[[], UUID]
"""Answers a new id at each call. Injected wherever an id is minted."""

DEFAULT_PROJECT_ID = 1
"""The project of an installation that has configured none."""

DEFAULT_PROJECT = "default"
"""Its name."""


def new_id() -> UUID:
    """Return a new UUIDv7: unique across threads and processes, and ordered by time."""
    return uuid_utils.compat.uuid7()


def sequential_ids() -> IdSource:
    """Return an id source that counts up from 1; for tests and examples.

    The ids are well-formed UUIDv7 whose time is 0, so that they sort in the order of minting.
    """
    numbers = count(1)
    return lambda: UUID(int=(7 << 76) | (0b10 << 62) | next(numbers))


def span_id(tool_call_id: UUID) -> str:
    """Return the OpenTelemetry span id that stands for a tool call, the same at each attempt.

    A digest: a UUIDv7's own first half is nearly the same for all calls of one millisecond.
    """
    return sha256(tool_call_id.bytes).digest()[:8].hex()
