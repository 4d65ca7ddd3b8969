"""Derive how the work of a span ended: its status, reason and error.

Frameworks and runtimes use exceptions not only for failures, but also to pause a call, to hand over
and to cancel. The name of the error tells them apart, in every language.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import Role, text
from tracer.otel.otlp.span_fields import error_of, stored
from tracer.records.arguments import parsed
from tracer.records.spans import STATUS_ERROR
from tracer.records.status import Reason, Status

_CANCELLED = re.compile(
    r"(?:context|task|operation|job|future|invocation)?(?:cancell?ed|cancell?ation|abort|aborted)"
    r"(?:error|exception)?|keyboardinterrupt|generatorexit|interruptedexception"
    r"|closedbyinterruptexception"
)
_TIMED_OUT = re.compile(
    r"(?:api|http|read|write|connect|connection|pool|socket|tool|async|request|function|agent)?"
    r"(?:timeout|timedout|timeoutcancellation)(?:error|exception)?"
    r"|(?:context)?deadlineexceeded(?:error|exception)?|etimedout"
)
_PAUSED = frozenset(
    (
        *("graphinterrupt", "nodeinterrupt", "graphbubbleup", "approvalrequired", "calldeferred"),
        *("toolapprovalrequired", "stopagentrun", "agentrunpaused", "runpaused", "suspend"),
        *("workflowsuspended", "toolsuspended", "humaninputrequired", "interruptionrequired"),
    )
)
"""The names of errors by which a framework pauses a call until a person or a system answers."""
_HANDED_OVER = frozenset(("parentcommand", "handoff", "agenthandoff", "handoffexception"))
"""The names of errors by which a framework hands control to another agent: the call succeeded."""
_GO_ERRORS = ("context canceled", "context deadline exceeded")
"""Messages of errors that have no class of their own."""
_NO_NAME = re.compile(r"[\s_]+")


class Ending(NamedTuple):
    """How work ended."""

    status: Status
    reason: str | None = None
    error_type: str | None = None
    message: str | None = None
    stack: str | None = None


def ending_of(span: SlimSpan, failure: Reason | None = None, has_failed: bool = False) -> Ending:
    """Return the ending of a span that has ended.

    Args:
        span: The span.
        failure: The reason to store if the work failed.
        has_failed: Whether the work failed even if the span's status is not an error.
    """
    facts = span.facts
    error = error_of(span)
    kind, message, stack = error["error_type"], error["error_message"], error["error_stack"]
    if facts.cancelled is not None:
        return Ending(Status.CANCELLED, None, stored(facts.cancelled) or None, message, stack)
    is_error = span.status_code == STATUS_ERROR
    reported = _reported_failure(facts.result) if facts.role is Role.TOOL else None
    if not (is_error or has_failed or reported is not None or "error.type" in span.attributes):
        if facts.is_interrupted:
            return Ending(Status.CANCELLED, Reason.INTERRUPTED.value)
        return Ending(Status.SUCCEEDED)
    names = {_name_in(kind if kind is not None else message)}
    names |= {_name_in(each) for each in _GO_ERRORS if (message or "").endswith(each)}
    if not names.isdisjoint(_HANDED_OVER):
        return Ending(Status.SUCCEEDED)
    if not names.isdisjoint(_PAUSED):
        return Ending(Status.CANCELLED, Reason.DEFERRED.value, kind, message, stack)
    if any(_CANCELLED.fullmatch(name) for name in names):
        return Ending(Status.CANCELLED, None, kind, message, stack)
    if failure is not Reason.DENIED and any(_TIMED_OUT.fullmatch(name) for name in names):
        failure = Reason.TIMED_OUT
    message = message or stored(reported)
    return Ending(Status.FAILED, failure.value if failure else None, kind, message, stack)


def _name_in(error: str | None) -> str:
    """Return the name of an error's class, without its package, in lower case and as one word."""
    head = (error or "").strip().partition("\n")[0].partition("(")[0]
    name = re.split(r"::|[.:/$]", head.rstrip(".:"))[-1]
    return _NO_NAME.sub("", name).lower()


def _reported_failure(result: str | None) -> str | None:
    """Return the message of a tool result that reports a failure (MCP); None for other results.

    Only the field `isError` counts. A result that merely contains the word error is a success.
    """
    if result is None or '"isError"' not in result:
        return None
    fields = parsed(result)
    if not isinstance(fields, dict) or fields.get("isError") is not True:
        return None
    content: Any = fields.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [each.get("text") if isinstance(each, dict) else text(each) for each in parts]
    return "\n".join(each for each in texts if isinstance(each, str) and each) or result
