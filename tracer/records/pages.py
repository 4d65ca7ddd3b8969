"""Pages of a list, and the cursors by which clients request the next page."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import orjson

from tracer.errors import BadCursor


@dataclass(frozen=True)
class Cursor:
    """The position after the last item of a page: the time and the id of this item."""

    moment: datetime
    record_id: UUID

    def encode(self) -> str:
        """Return the cursor as text that a URL can contain. Clients must not interpret it."""
        return _encoded([self.moment.isoformat(), str(self.record_id)])

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Parse the result of `encode`.

        Raises:
            BadCursor: `text` is not a cursor.
        """
        try:
            time_text, record_id = _decoded(text)
            moment = datetime.fromisoformat(time_text)
            if moment.tzinfo is None or not 1900 <= moment.year < 9000:
                raise ValueError(time_text)
            return cls(moment, UUID(record_id))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


@dataclass(frozen=True)
class SortedCursor:
    """The position after the last item of a page, in a list that is sorted by a value."""

    order: str
    """The sort order of the list. A cursor of a list with another order is rejected."""
    value: float | None
    """The value of the last item; None if it has none."""
    record_id: UUID

    def encode(self) -> str:
        """Return the cursor as text that a URL can contain. Clients must not interpret it."""
        return _encoded([self.order, self.value, str(self.record_id)])

    @classmethod
    def decode(cls, text: str, order: str) -> SortedCursor:
        """Parse the result of `encode`.

        Raises:
            BadCursor: `text` is not a cursor, or is the cursor of a list with another order.
        """
        try:
            of_order, value, record_id = _decoded(text)
            if of_order != order or not (value is None or type(value) in (int, float)):
                raise ValueError(text)
            return cls(order, value, UUID(record_id))
        except (ValueError, TypeError, AttributeError, binascii.Error) as error:
            raise BadCursor() from error


def _encoded(parts: list[Any]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def _decoded(text: str) -> Any:
    packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    return orjson.loads(packed)


Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """One page of a list, and the cursor of the next page.

    To return a page, a store examines a limited number of records. If few of them match, the page
    may have fewer items than requested, or none. The list continues nevertheless if there is a
    `next_cursor`.
    """

    items: list[Item]
    next_cursor: str | None
    """None on the last page."""
    searched_back_to: datetime | None = None
    """The time of the last examined record, if the limit of examined records was reached."""
