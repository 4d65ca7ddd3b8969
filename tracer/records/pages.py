"""Pages of lists: newest first, and where to go on."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

import orjson

from tracer.errors import BadCursor


@dataclass(frozen=True)
class Cursor:
    """Where a page ends: lists are ordered newest first, by a moment and then by id."""

    moment: datetime
    record_id: UUID

    def encode(self) -> str:
        """Return the cursor as opaque, URL-safe text."""
        packed = orjson.dumps([self.moment.isoformat(), str(self.record_id)])
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Return the cursor that `encode` wrote.

        Raises:
            BadCursor: `text` is nothing that `encode` writes.
        """
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            written, record_id = orjson.loads(packed)
            moment = datetime.fromisoformat(written)
            if moment.tzinfo is None or not 1900 <= moment.year < 9000:
                raise ValueError(written)
            return cls(moment, UUID(record_id))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some items of a list, and where to go on.

    A page looks at so many records and no more: where few of them are wanted it may hold fewer
    items than were asked for, even none, and the list still goes on.
    """

    items: list[Item]
    next_cursor: str | None
    """Null on the last page."""
    searched_back_to: datetime | None = None
    """Up to which moment it looked, where that is why it holds fewer."""
