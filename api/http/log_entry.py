"""The facts about one request for its line in the log and for the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

ENTRY = "tracer.log_entry"
"""The key of an ASGI scope that holds the request's `LogEntry`."""


@dataclass(slots=True)
class LogEntry:
    """The facts about a request. They are collected while the server answers the request."""

    request_id: str
    status: int = 0
    """The HTTP status; 0 before the response starts."""
    received: int = 0
    sent: int = 0
    is_stream: bool = False
    problem: str | None = None
    """The error code of the response; None for a success."""


def log_entry(scope: Scope) -> LogEntry | None:
    """Return the log entry of a request; None if the middleware `RequestLog` is not installed."""
    entry = scope.get(ENTRY)
    return entry if isinstance(entry, LogEntry) else None


def note_problem(scope: Scope, code: str) -> None:
    """Add the error code of a response to the request's log entry."""
    entry = log_entry(scope)
    if entry is not None:
        entry.problem = code
