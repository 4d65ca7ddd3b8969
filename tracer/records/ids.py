"""Ids: UUIDv7 (RFC 9562), minted only by the runtime.

Providers' call ids are never used as ids, because they may be repeated, collide or be empty.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import count
from uuid import UUID

import uuid_utils.compat

IdSource = Callable[[], UUID]
"""Returns a new id at each call. Injected wherever ids are minted."""

DEFAULT_PROJECT_ID = 1
"""The project of an installation without configured projects."""

DEFAULT_PROJECT = "default"
"""The name of the default project."""


def new_id() -> UUID:
    """Return a new UUIDv7, unique across threads and processes, and ordered by time."""
    return uuid_utils.compat.uuid7()


def sequential_ids() -> IdSource:
    """Return an id source that counts up from 1; for tests and examples.

    The ids are valid UUIDv7 with the time 0, and sort in the order of minting.
    """
    numbers = count(1)
    return lambda: UUID(int=(7 << 76) | (0b10 << 62) | next(numbers))


def span_id(tool_call_id: UUID) -> str:
    """Return the OpenTelemetry span id of a tool call, the same for each attempt.

    It is a digest, because the first half of UUIDv7s of one millisecond is nearly the same.
    """
    return sha256(tool_call_id.bytes).digest()[:8].hex()
