"""`Work`, the base of plans, steps, think-acts and tool calls that are recorded by hand.

If work is used as a `with` block, it starts and ends with the block. The innermost open block is
the current work of the code inside: new work becomes its child. If the block raises an exception,
the work is recorded as failed. If the work has already ended, its recorded end does not change.

Some programs learn about starts and ends only by callbacks. They call `start` and then `finish`,
`fail` or `cancel` themselves.

Invalid values raise no exceptions here. An invalid field is omitted from the event and logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Token
from functools import cache
from threading import get_ident
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

Model = TypeVar("Model", bound=BaseModel)

_CURRENT = otel_context.create_key("tracer-work")
_finders: list[Callable[[], Work | None]] = []
_CANCELLATIONS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class EndFields(TypedDict):
    """The fields of every event that records the end of a record."""

    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


class _ContextFrame:
    """An entry in the stack of current work: the work, and the entry below it."""

    __slots__ = ("is_detached", "outer", "thread", "token", "work")

    def __init__(self, work: Work) -> None:
        """Make `work` current."""
        self.work = work
        self.outer = _innermost()
        self.is_detached = False
        """Whether the frame was left in a context other than the one in which it was entered."""
        self.token: Token[Context] = otel_context.attach(otel_context.set_value(_CURRENT, self))
        self.thread = get_ident()
        self._count(1)

    def _count(self, change: int) -> None:
        blocks = self.work.connection.open_blocks
        number = blocks.get(self.thread, 0) + change
        if number > 0:
            blocks[self.thread] = number
        else:
            blocks.pop(self.thread, None)

    def leave(self) -> None:
        """Make the outer frame current again, even if inner frames were never left."""
        self._count(-1)
        frame = _innermost()
        while frame is not None and frame is not self:
            frame = frame.outer
        try:
            if frame is self:
                # `detach` would log an error if the token belongs to another context.
                self.token.var.reset(self.token)
                return
        except (ValueError, RuntimeError):
            pass
        # A generator that was not read to its end is closed in another context, or by the garbage
        # collector. This frame then remains in its reader's context, where it must not count.
        self.is_detached = True


def _innermost() -> _ContextFrame | None:
    frame = otel_context.get_value(_CURRENT)
    return frame if isinstance(frame, _ContextFrame) else None


def current_work(connection: Connection | None = None) -> Work | None:
    """Return the innermost open record (`Work`) around the calling code; None if there is none.

    Args:
        connection: Consider only work that this connection records; None: any connection.
    """
    frame = _innermost()
    while frame is not None and (
        frame.is_detached or (connection is not None and frame.work.connection is not connection)
    ):
        frame = frame.outer
    work = None if frame is None else frame.work
    for find in _finders:
        try:
            external = find()
        except Exception as error:
            log.error("current_work_not_found", error=error_location(error))
            continue
        if external is not None and connection in (None, external.connection):
            work = innermost_of(external, work)
    return work


def note_root_plan(connection: Connection) -> None:
    """Log once in a process that a run starts in a thread that may have lost its parent.

    This is so if no block is open in this thread, but blocks are open in other threads.
    """
    blocks = connection.open_blocks
    if blocks and get_ident() not in blocks and not connection.is_disabled:
        _log_lost_parent()


@cache  # once for a process
def _log_lost_parent() -> None:
    log.warning(
        "run_started_in_another_thread",
        what_to_do="Nothing, if this run is a run of its own. If it is a part of the work that is "
        "open in another thread, pass the thread's function through `tracer.in_context(function)`, "
        "or call `tracer.instrument_threads()` when the program starts.",
    )


def add_work_finder(find: Callable[[], Work | None]) -> Callable[[], None]:
    """Make `current_work` also search the context of an agent framework.

    Args:
        find: Returns the innermost record around the calling code according to the framework's own
            context; None if there is none.

    Returns:
        A function that removes `find` again.
    """
    _finders.append(find)

    def remove_finder() -> None:
        with suppress(ValueError):
            _finders.remove(find)

    return remove_finder


def innermost_of(work: Work | None, other: Work | None) -> Work | None:
    """Return `other` if `work` contains it, otherwise `work`.

    If one of them is None, return the other one.
    """
    if work is None or other is None:
        return work or other
    parent_work = other.parent_work
    while parent_work is not None:
        if parent_work.work_id == work.work_id:
            return other
        parent_work = parent_work.parent_work
    return work


def text_of(value: Any) -> str | None:
    """Return a value as text to record.

    Text and None are returned unchanged. Any other value is converted to JSON.
    """
    return None if value is None else result_text(value)


def valid_event(event: type[Model], **fields: Any) -> Model:
    """Create an event from the valid fields. Log the names of invalid fields.

    Raises:
        ValueError: A required field is invalid.
    """
    validate: Callable[[dict[str, Any]], Model] = event.__pydantic_validator__.validate_python
    try:
        return validate(fields)  # as `event(**fields)` does, with two calls in Python fewer
    except ValidationError as error:
        invalid = {to_snake(str(each["loc"][0])) for each in error.errors() if each["loc"]}
        log.error("fields_left_out", event_type=error.title, fields=sorted(invalid))
        return validate({name: value for name, value in fields.items() if name not in invalid})


class Work:
    """A record that starts and ends: a plan, a step, a think-act or a tool call.

    The class does not derive from `ABC`, because `isinstance` would be several times slower.
    """

    failed_for: ClassVar[Reason | None] = None
    """The reason that is recorded for a failure without a reason of its own."""
    ids: dict[str, UUID]
    """The ids that each event of this work contains."""

    def __init__(self, connection: Connection, implicit_plan: Work | None = None) -> None:
        """Create the work. Nothing is recorded before it starts.

        Args:
            connection: The connection that records the work.
            implicit_plan: A plan that was created only for this work. The plan ends when the work
                ends.
        """
        self.connection = connection
        self.has_started = False
        self.has_ended = False
        self._implicit_plan = implicit_plan
        self._durable: Future[None] = DONE
        self._frames: list[_ContextFrame] = []

    @property
    def work_id(self) -> UUID:
        """The id of this work's record."""
        raise NotImplementedError

    @property
    def parent_work(self) -> Work | None:
        """The work that contains this work; None for a root plan."""
        raise NotImplementedError

    def stamp(self) -> dict[str, Any]:
        """Return the fields that all events of this work contain: time, recorder and ids."""
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
        """Make the work current inside a `with` block. The block does not start or end the work."""
        frame = _ContextFrame(self)
        try:
            yield
        finally:
            frame.leave()

    def end_with(self, error: BaseException | None) -> None:
        """Record the end of the work.

        The work succeeded if `error` is None. It was cancelled if `error` is a cancellation, such
        as `CancelledError` or `KeyboardInterrupt`. Otherwise it failed.
        """
        if error is None:
            self._end(Status.SUCCEEDED)
        elif isinstance(error, _CANCELLATIONS):
            self._end(Status.CANCELLED)
        else:
            self.fail(error)

    def _enter(self) -> None:
        if not self.has_started:
            self.start()
        self._frames.append(_ContextFrame(self))

    def _leave(self, error: BaseException | None) -> None:
        if self._frames:
            self._frames.pop().leave()
        self.end_with(error)

    # --- Start and end -------------------------------------------------------------------------

    def start(self) -> None:
        """Record the start of the work, without waiting until the event is durable."""
        self.has_started = True
        self._start_implicit_plan()
        self._record(self._starting_events)

    def fail(self, error: BaseException | ErrorInfo | str, reason: str | None = None) -> None:
        """Record that the work failed.

        Args:
            error: The exception, or a message.
            reason: The reason to record, such as `timed_out`.
        """
        if isinstance(error, str):
            error = ErrorInfo(type="Error", message=error)
        elif isinstance(error, BaseException):
            if isinstance(error, (ToolError, LineageError)) and reason is None:
                reason = error.reason
            error = error_info(error)
        self._end(Status.FAILED, reason or self.failed_for, error)

    def cancel(self, reason: str | None = None) -> None:
        """Record that the work was cancelled."""
        self._end(Status.CANCELLED, reason)

    @property
    def is_durable(self) -> bool:
        """Whether all events of this work so far are in the store, or in the spool on disk."""
        return self._durable.done()

    def wait(self) -> None:
        """Wait until the work's events are durable: in the store, or in the spool on disk.

        This method blocks the thread. In the thread of an event loop, await `durable` instead.
        """
        if self._durable is not DONE:
            self._durable.result()

    async def durable(self) -> None:
        """Wait until the work's events are in the store, or in the spool on disk."""
        if not self.is_durable:
            await asyncio.wrap_future(self._durable)

    def _end(
        self, status: EndingStatus, reason: str | None = None, error: ErrorInfo | None = None
    ) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        ending: EndFields = {"status": status, "reason": reason, "error": error}
        self._record(lambda: self._ending_events(ending))
        if self._implicit_plan is not None:
            self._start_implicit_plan()
            self._implicit_plan._end(status, None, error)
            self._durable = self._implicit_plan._durable

    def _start_implicit_plan(self) -> None:
        if self._implicit_plan is not None and not self._implicit_plan.has_started:
            self._implicit_plan.start()

    def _starting_events(self) -> Iterable[Event]:
        """Return the events that record the start of the work."""
        raise NotImplementedError

    def _ending_events(self, ending: EndFields) -> Iterable[Event]:
        """Return the events that record the end of the work."""
        raise NotImplementedError

    def _record(self, events: Callable[[], Iterable[Event]]) -> None:
        try:
            self._durable = self.connection.record(*events())
        except Exception as error:
            log.error("event_not_made", work=type(self).__name__, error=error_location(error))
