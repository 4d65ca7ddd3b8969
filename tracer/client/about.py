"""Who a run is for: the user, session, tags and metadata of the runs that start in a `with` block.

The values are in OpenTelemetry's context, as the current work is (`tracer.client.block`). So they
reach the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from tracer.client.connection import Connection

_ABOUT = otel_context.create_key("tracer-about")


class About(NamedTuple):
    """The values that a run gets from the `about` blocks around its start."""

    user: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = {}

    def within(self, user: Any, session: Any, tags: Any, metadata: Any) -> About:
        """Return these values with inner values, which take precedence.

        An inner user or session replaces the outer one, unless it is None or empty. Tags are added.
        The keys of the metadata are merged. Tags and metadata of other types are ignored.
        """
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            tags = (tags,) if isinstance(tags, str) else ()
        return About(
            self.user if user in (None, "") else str(user),
            self.session if session in (None, "") else str(session),
            tuple(dict.fromkeys((*self.tags, *map(str, tags)))),
            {**self.metadata, **(metadata if isinstance(metadata, Mapping) else {})},
        )


class _Block:
    """An open `about` block, and the block around it."""

    __slots__ = ("about", "connection", "is_detached", "outer")

    def __init__(self, connection: Connection, about: About, outer: object) -> None:
        self.connection = connection
        self.about = about
        self.outer = outer
        self.is_detached = False
        """Whether the block was left in a context other than the one in which it was entered."""


def current_about(connection: Connection, context: Context | None = None) -> About | None:
    """Return the values for runs of a connection that start here; None outside of such blocks.

    Args:
        connection: The connection that records the run.
        context: The context in which the run starts; None: the current context.
    """
    block = otel_context.get_value(_ABOUT, context)
    while isinstance(block, _Block):
        if block.connection is connection and not block.is_detached:
            return block.about
        block = block.outer
    return None


@contextmanager
def about_bound(connection: Connection, about: About) -> Iterator[None]:
    """Give runs of a connection that start inside a `with` block these values."""
    block = _Block(connection, about, otel_context.get_value(_ABOUT))
    token = otel_context.attach(otel_context.set_value(_ABOUT, block))
    try:
        yield
    finally:
        try:
            # `detach` would log an error if the token belongs to another context.
            token.var.reset(token)
        except (ValueError, RuntimeError):
            # A generator that was not read to its end is closed in another context. The block
            # then remains in its reader's context, where it must not count.
            block.is_detached = True
