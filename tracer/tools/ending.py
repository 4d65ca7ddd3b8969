"""How a call, a step or a plan ended, as data: a failure of theirs is no error of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

from tracer.errors import LineageError, ToolError
from tracer.events import ErrorInfo
from tracer.status import Reason, Status
from tracer.tools.results import error_info, model_view

_REASON = re.compile("[a-z][a-z0-9_]{0,63}")

EndingStatus = Literal[Status.CANCELLED, Status.FAILED, Status.SUCCEEDED]


class EndingFields(TypedDict):
    """What the events of all kinds of ending have in common."""

    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How something ended."""

    status: EndingStatus
    reason: str | None = None
    """One of `Reason`, or a tool's own."""
    result: str | None = None
    """What came of it."""
    error: ErrorInfo | None = None

    @property
    def fields(self) -> EndingFields:
        """The fields of the event that records it, the result aside."""
        return {"status": self.status, "reason": self.reason, "error": self.error}

    def for_model(self) -> str:
        """Return what the model that chose the call is told."""
        if self.status is Status.SUCCEEDED:
            return model_view(self.result or "")
        error = {
            "status": self.status.value,
            "reason": self.reason,
            "type": self.error and self.error.type,
            "message": self.error and self.error.message,
        }
        known = {name: value for name, value in error.items() if value}
        return model_view(json.dumps({"error": known}, ensure_ascii=False))


def succeeded(result: str | None) -> Ending:
    """Return the ending of what came to `result`."""
    return Ending(Status.SUCCEEDED, result=result)


def failed(
    error: BaseException, reason: Reason | None = None, scrub: Callable[[str], str] = str
) -> Ending:
    """Return the ending of what raised `error`.

    Args:
        error: What was raised.
        reason: Which kind of failure it is. Unless given, the error tells it if it is a
            `ToolError` or a `LineageError`; any other is a tool's.
        scrub: Takes out of its words what must not be shown.
    """
    if reason is not None:
        return Ending(Status.FAILED, reason.value, error=error_info(error, scrub))
    told = error.reason if isinstance(error, (ToolError, LineageError)) else ""
    known = told if _REASON.fullmatch(told) else Reason.TOOL_ERROR.value
    return Ending(Status.FAILED, known, error=error_info(error, scrub))


def timed_out(message: str) -> Ending:
    """Return the ending of what did not end in time."""
    error = ErrorInfo(type="TimeoutError", message=message)
    return Ending(Status.FAILED, Reason.TIMED_OUT.value, error=error)


def cancelled(reason: str | None = None, message: str | None = None) -> Ending:
    """Return the ending of what was cancelled.

    Args:
        reason: Why, where somebody asked for it.
        message: What to say about it, where it cancelled itself.
    """
    error = ErrorInfo(type="CancelledError", message=message) if message else None
    return Ending(Status.CANCELLED, reason, error=error)
