"""What was started and will end, as a block: the innermost one around some code is current there.

A block ends with its code, as failed where that raises, unless it was ended before. A program that
is told of starts and ends by callbacks calls `start` and `finish`, `fail` or `cancel` itself.

Nothing here raises because of what is recorded: what an event cannot hold is left out, and logged.

Finalizers that the garbage collector runs may record, too. The collector interrupts any code, so
their work does not nest under the current work. It is not current in the context either: CPython
before 3.12 may run the collector inside `ContextVar.set`, which then uses freed memory if a
finalizer sets the context.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Token
from types import TracebackType
from typing import Any, ClassVar, Self, TypedDict, TypeVar
from uuid import UUID

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake

from tracer.client.connection import DONE, Connection
from tracer.errors import LineageError, ToolError
from tracer.logs import get_logger
from tracer.recorder.counts import error_location
from tracer.records.events import EndingStatus, ErrorInfo, Event
from tracer.records.status import Reason, Status
from tracer.tools.definition.results import error_info, result_text

log = get_logger(__name__)

Made = TypeVar("Made", bound=BaseModel)

_CURRENT = otel_context.create_key("tracer-work")
_finders: list[Callable[[], Work | None]] = []
_CANCELLATIONS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class Ending(TypedDict):
    """What every ending says."""

    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


class _Collection:
    """The garbage collection in progress; there is at most one in a process."""

    thread: int | None = None
    """The thread that it runs in; None between collections."""
    innermost: _Place | None = None
    """The innermost place of the finalizer that it runs."""


def _note_collection(phase: str, info: dict[str, int]) -> None:
    _Collection.thread = threading.get_ident() if phase == "start" else None
    _Collection.innermost = None


gc.callbacks.append(_note_collection)


def is_finalizing() -> bool:
    """Return whether the garbage collector runs this code, on top of whatever it interrupted."""
    return _Collection.thread is not None and _Collection.thread == threading.get_ident()


class _Place:
    """Where a piece of work is current, and what was so before."""

    __slots__ = ("before", "is_stranded", "token", "work")

    def __init__(self, work: Work) -> None:
        """Make `work` current."""
        self.work = work
        self.before = _innermost()
        self.is_stranded = False
        """Whether it was left from where it could not be taken back."""
        self.token: Token[Context] | None = None
        if is_finalizing():
            _Collection.innermost = self
        else:
            self.token = otel_context.attach(otel_context.set_value(_CURRENT, self))

    def leave(self) -> None:
        """Restore what was before, whatever was made current within and never left."""
        inner = _innermost()
        while inner is not None and inner is not self:
            inner = inner.before
        try:
            if inner is self:
                if self.token is None:
                    _Collection.innermost = self.before
                else:
                    # `detach` would log an error if the token belongs to another context.
                    self.token.var.reset(self.token)
                return
        except (ValueError, RuntimeError):
            pass
        # A generator that was not read to its end is closed in another context, or by the garbage
        # collector. The context of its reader keeps this place.
        self.is_stranded = True


def _innermost() -> _Place | None:
    if is_finalizing():
        return _Collection.innermost
    place = otel_context.get_value(_CURRENT)
    return place if isinstance(place, _Place) else None


def current_work(connection: Connection | None = None) -> Work | None:
    """Return the innermost work that this code runs in; None outside of any.

    Args:
        connection: Whose work; unless given, anybody's.
    """
    place = _innermost()
    while place is not None and (
        place.is_stranded or (connection is not None and place.work.connection is not connection)
    ):
        place = place.before
    work = None if place is None else place.work
    for find in () if is_finalizing() else _finders:
        try:
            found = find()
        except Exception as error:
            log.error("current_work_not_found", error=error_location(error))
            continue
        if found is not None and connection in (None, found.connection):
            work = inner(found, work)
    return work


def find_current_with(find: Callable[[], Work | None]) -> Callable[[], None]:
    """Look for current work in a framework's own context, too.

    Args:
        find: Returns the work that this code runs in, as the framework has it.

    Returns:
        What takes it back.
    """
    _finders.append(find)

    def take_back() -> None:
        with suppress(ValueError):
            _finders.remove(find)

    return take_back


def inner(work: Work | None, other: Work | None) -> Work | None:
    """Return the one of two that lies below the other; the first where neither does."""
    if work is None or other is None:
        return work or other
    above = other.above
    while above is not None:
        if above.work_id == work.work_id:
            return other
        above = above.above
    return work


def text_of(value: Any) -> str | None:
    """Return a value as it is recorded: text as it is, None as nothing, anything else as JSON."""
    return None if value is None else result_text(value)


def sound(event: type[Made], **fields: Any) -> Made:
    """Return an event without those of its fields that are not valid, which are logged.

    Raises:
        ValueError: It cannot do without them.
    """
    make: Callable[[dict[str, Any]], Made] = event.__pydantic_validator__.validate_python
    try:
        return make(fields)  # what the class does, without two more calls in Python
    except ValidationError as error:
        wrong = {to_snake(str(each["loc"][0])) for each in error.errors() if each["loc"]}
        log.error("fields_left_out", event_type=error.title, fields=sorted(wrong))
        return make({name: value for name, value in fields.items() if name not in wrong})


class Work:
    """Something that was started and will end.

    No `ABC`: asking what kind it is would take several times as long.
    """

    failed_for: ClassVar[Reason | None] = None
    """The reason of a failure that gives none."""
    ids: dict[str, UUID]
    """The ids that every event of it carries."""

    def __init__(self, connection: Connection, around: Work | None = None) -> None:
        """Take a place; nothing is recorded yet.

        Args:
            connection: Where to record.
            around: What was made for this alone, and ends with it.
        """
        self.connection = connection
        self.has_started = False
        self.has_ended = False
        self._around = around
        self._durable: Future[None] = DONE
        self._places: list[_Place] = []

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        raise NotImplementedError

    @property
    def above(self) -> Work | None:
        """What it hangs under; None for a root plan."""
        raise NotImplementedError

    def stamp(self) -> dict[str, Any]:
        """Return what every event of it starts with."""
        return {**self.connection.stamp(), **self.ids}

    # --- The block -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        try:
            self.wait()
        except BaseException as error:
            self._leave(error)
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)
        self.wait()

    async def __aenter__(self) -> Self:
        self._enter()
        try:
            await self.durable()
        except BaseException as error:
            self._leave(error)
            raise
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)
        await self.durable()

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Make it current within, without a start or an end."""
        place = _Place(self)
        try:
            yield
        finally:
            place.leave()

    def end_with(self, error: BaseException | None) -> None:
        """Record that it ended as a block does that `error` leaves, or nothing."""
        if error is None:
            self._end(Status.SUCCEEDED)
        elif isinstance(error, _CANCELLATIONS):
            self._end(Status.CANCELLED)
        else:
            self.fail(error)

    def _enter(self) -> None:
        if not self.has_started:
            self.start()
        self._places.append(_Place(self))

    def _leave(self, error: BaseException | None) -> None:
        if self._places:
            self._places.pop().leave()
        self.end_with(error)

    # --- Its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Record that it starts, and return before that is durable."""
        self.has_started = True
        self._start_around()
        self._record(self._starting_events)

    def fail(self, error: BaseException | ErrorInfo | str, reason: str | None = None) -> None:
        """Record that it failed.

        Args:
            error: What went wrong.
            reason: Which kind of ending it was, such as `timed_out`.
        """
        if isinstance(error, str):
            error = ErrorInfo(type="Error", message=error)
        elif isinstance(error, BaseException):
            if isinstance(error, (ToolError, LineageError)) and reason is None:
                reason = error.reason
            error = error_info(error)
        self._end(Status.FAILED, reason or self.failed_for, error)

    def cancel(self, reason: str | None = None) -> None:
        """Record that it was cancelled."""
        self._end(Status.CANCELLED, reason)

    @property
    def is_durable(self) -> bool:
        """Whether everything that was recorded of it is durable."""
        return self._durable.done()

    def wait(self) -> None:
        """Wait until what was recorded of it is durable. Not from an event loop's thread."""
        if self._durable is not DONE:
            self._durable.result()

    async def durable(self) -> None:
        """Wait until what was recorded of it is durable."""
        if not self.is_durable:
            await asyncio.wrap_future(self._durable)

    def _end(
        self, status: EndingStatus, reason: str | None = None, error: ErrorInfo | None = None
    ) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        ending: Ending = {"status": status, "reason": reason, "error": error}
        self._record(lambda: self._ending_events(ending))
        if self._around is not None:
            self._start_around()
            self._around._end(status, None, error)
            self._durable = self._around._durable

    def _start_around(self) -> None:
        if self._around is not None and not self._around.has_started:
            self._around.start()

    def _starting_events(self) -> Iterable[Event]:
        """Return what is to be recorded of its start."""
        raise NotImplementedError

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        """Return what is to be recorded of its end."""
        raise NotImplementedError

    def _record(self, events: Callable[[], Iterable[Event]]) -> None:
        try:
            self._durable = self.connection.record(*events())
        except Exception as error:
            log.error("event_not_made", work=type(self).__name__, error=error_location(error))
