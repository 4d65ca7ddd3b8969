"""Pages of lists, which are ordered newest first."""

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
    """The position after a page: the time and the id of its last item."""

    moment: datetime
    record_id: UUID

    def encode(self) -> str:
        """Return the cursor as opaque text for URLs."""
        packed = orjson.dumps([self.moment.isoformat(), str(self.record_id)])
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Parse the result of `encode`.

        Raises:
            BadCursor: `text` is not a cursor.
        """
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            time_text, record_id = orjson.loads(packed)
            moment = datetime.fromisoformat(time_text)
            if moment.tzinfo is None or not 1900 <= moment.year < 9000:
                raise ValueError(time_text)
            return cls(moment, UUID(record_id))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some items of a list, and the cursor of the next page.

    A page examines a limited number of records. If few of them match, it may contain fewer items
    than requested, or none, although the list continues.
    """

    items: list[Item]
    next_cursor: str | None
    """None on the last page."""
    searched_back_to: datetime | None = None
    """If the limit of examined records was reached, the time of the last one."""
