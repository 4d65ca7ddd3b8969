"""What a coding agent's dialect declares: the signs of its work in spans and log records.

A coding agent describes one piece of work in several spans and log records. Each of them arrives
by itself, and some never do. A dialect translates them into signs, one by one.
`tracer.otel.projection.sessions` collects the signs of each piece of work, and links the pieces.

A *piece of work* is a turn (the work for one prompt), an agent, a model call or a tool call. A
*name* is a tuple such as `("agent", "a17")`, which the dialect makes of the emitter's ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tracer.otel.dialects.dialect import Role, SlimSpan, SpanFacts
from tracer.records.spans import LogRecord

_MOST_LEVELS = 100
Name = tuple[Any, ...]
"""An id of a piece of work, with its kind. Names of different roles are never compared."""


class Sign(Struct, frozen=True):
    """What one span or log record states about one piece of work."""

    role: Role
    """`AGENT` for turns and agents, `MODEL` or `TOOL`."""
    names: tuple[Name, ...] = ()
    """The names of the work. Signs that share a name are about the same work."""
    call_id: Name | None = None
    """A name that may repeat, such as a provider's call id. A sign without `names` is about the
    work with this `call_id` that was running at `time`."""
    stage: int = 0
    """Signs without `names` are matched in this order. A piece of work has one sign of a stage."""
    time: int = 0
    """A time at which the work had begun, in nanoseconds since 1970; 0 if `start` is meant."""
    start: int = 0
    """When the work began; 0 if the sign does not state it."""
    end: int = 0
    """When the work ended; 0 if the sign does not state it."""
    span: SlimSpan | None = None
    """The span of the work itself, which becomes its record."""
    part: SlimSpan | None = None
    """A span that describes the work, and becomes no record of its own."""
    span_id: bytes | None = None
    """The id that the span of the work itself has, or will have."""
    lasting: Name | None = None
    """A name that is known from the beginning. The ids of the records then derive from it, so that
    they stay as they are when a span arrives."""
    is_extra: bool = False
    """Whether a sign without `names` only adds to work that is known otherwise, and makes none."""
    below: bytes | None = None
    """The id of the span that the work is below, if no name of its agent is known."""
    agent: tuple[Name, ...] = ()
    """The names of the turn or agent that did the work. They all name the same one, which exists
    even if it has no other sign. Of an agent: the agent above it, if no tool call started it."""
    round: Name | None = None
    """The name of the model call that chose the tool call."""
    opener: Name | None = None
    """The `call_id` of the tool call that started the agent. See also `Opening`."""
    follows: Name | None = None
    """The `call_id` of the tool call that the turn follows."""
    above: Name | None = None
    """The name of the agent that made the call which started this agent."""
    facts: SpanFacts | None = None
    """The facts of the work, if its own span has not arrived."""
    fields: Mapping[str, Any] = {}
    """Fields of `SpanFacts` that the sign states; None states nothing. If several signs state a
    field, the last one wins. Signs without `names` come last, by stage."""
    opened: Mapping[str, Any] = {}
    """Fields of the agent that the tool call starts."""
    error: str | None = None
    """Why the work failed; an empty text if that is unknown. None if it did not fail."""
    is_turn: bool = False
    """Whether the agent is a turn. No call starts a turn."""
    is_last: bool = False
    """Whether the model call is its agent's last one, so that the agent ends with it."""
    may_open: bool = False
    """Whether the tool call starts an agent that no name leads to yet."""
    is_background: bool = False
    """Whether the agent, or the agent that the call starts, may work on after the call ended."""

    def _replace(self, **changes: Any) -> Sign:
        return replace(self, **changes)


class Opening(NamedTuple):
    """A link: whatever agent has this name was started, or continued, by this tool call."""

    agent: Name
    call: Name
    evidence: str | None = None
    """Why the call must exist. It marks the link as inferred until the call's span arrives."""


class SessionParts(NamedTuple):
    """The spans and log records of one run that a dialect's emitter sent."""

    spans: list[SlimSpan]
    """Sorted by start and id."""
    logs: list[LogRecord]
    """Sorted by time."""
    by_id: dict[bytes, SlimSpan]

    def climb(
        self, span_id: bytes | None, is_end: Callable[[SlimSpan], bool]
    ) -> tuple[SlimSpan | None, bytes | None]:
        """Return the first span that is an end, from a span upwards.

        If a span on the way has not arrived, its id is returned instead.
        """
        span = self.by_id.get(span_id or b"")
        for _ in range(_MOST_LEVELS):
            if span is None:
                return None, span_id
            if is_end(span):
                return span, None
            span_id = span.missing_parent
            span = span.parent
        return None, None


class Session(NamedTuple):
    """How a dialect describes sessions."""

    signs: Callable[[SessionParts], Iterable[Sign | Opening]]
    """Returns the signs. The result must not depend on the order in which the parts arrived. The
    order matters only for `Sign.fields`."""
    complete_until: Callable[[SessionParts], int] = lambda _: -1
    """Returns the time until which no part is missing; -1 if that is unknown. Nothing is inferred
    about later work."""
    name: str | None = None
    """The name of the agent above several turns; None: that of the first turn."""
