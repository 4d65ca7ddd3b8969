"""Interpret the spans of a run, and build the forest of the work that they describe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from math import inf
from typing import Any, NamedTuple

from tracer.otel.dialects import (
    complete_run,
    dialects_of,
    genai,
    pending_of,
    read_span,
    readers_of,
    reads_parent,
    reported_failure,
    session_of,
)
from tracer.otel.dialects.dialect import (
    WRAPPER,
    Role,
    SlimSpan,
    SpanFacts,
    count,
    cut_circles,
)
from tracer.otel.otlp.spans import (
    Envelope,
    StoredMessage,
    attributes_of,
    error_of,
    events_of,
    logs_in,
    logs_of,
    merge_logs,
    session_run_id,
    stored,
)
from tracer.otel.projection.clocks import correct_clocks
from tracer.otel.projection.sessions import complete_sessions
from tracer.records import Reason, Status
from tracer.records.arguments import Canonical
from tracer.records.masks import MASK
from tracer.records.spans import (
    STATUS_ERROR,
    STATUS_OK,
    TRACE_ID_BYTES,
    LogRecord,
    id_of_later,
    spans_with_one_id,
)
from tracer.resource import NO_SERVICE, Service, service_of

# --- Read the spans of a run from stored OTLP messages.
#
# Each span is decoded in one version, linked to its parent and read by its dialect. Only fields
# that the projection needs are decoded.

_MASK = MASK[1:].encode()
"""The beginning of a mask without its bracket. Every mask contains it, even if JSON escapes the
bracket."""

_MOST_CHILDREN = 10
_MOST_READ_BYTES = 1_000_000
"""The maximum number of bytes to read if many children are read together with their parent. The
parent's bytes count once for each child. Above the limit, the children are read without it."""


class Resources:
    """The resources of a run's spans and log records, decoded on demand."""

    def __init__(self, versions: Mapping[bytes, _Version], logs: Iterable[LogRecord]) -> None:
        """Store the versions of the spans, the earliest first, and the log records, sorted."""
        self._versions = versions
        self._logs = logs

    def service(self, root_span_id: bytes | None) -> Service:
        """Return the name, version and environment of the service that executed the run.

        The resource of the root agent's span decides. If it names no service, the earliest span
        that names one decides, and finally the first log record that does.
        """
        services = (service_of(resource) for resource in self._resources(root_span_id))
        return next((each for each in services if any(each.values())), NO_SERVICE)

    def _resources(self, root_span_id: bytes | None) -> Iterator[Mapping[str, Any]]:
        root = self._versions.get(root_span_id or b"")
        if root is not None:
            yield attributes_of(root.resource_spans.resource.attributes)
        # Spans of one request share their resource.
        shared = {id(each.resource_spans): each.resource_spans for each in self._versions.values()}
        for resource_spans in shared.values():
            yield attributes_of(resource_spans.resource.attributes)
        for record in self._logs:
            yield record.resource


@dataclass(slots=True)
class RunSpans:
    """The spans of a run, read by their dialects."""

    trace_id: bytes
    """The trace id. For a session's own run, `session_run_id` of the session."""
    is_of_session: bool
    """Whether this is a session's own run, which contains only log records without a trace id."""
    sessions: frozenset[bytes]
    """The `session_run_id` of each session that the log records name."""
    spans: list[SlimSpan]
    """The spans, sorted by start and id. Spans that dialects created from log records are included.
    A pending span is replaced by the span that it announces."""
    versions: dict[bytes, SlimSpan]
    """One version of each span that was sent, including pending spans."""
    announced: dict[bytes, bytes]
    """The id of the span that each pending span announces."""
    may_hold_masks: bool
    """Whether any text may contain a mask of a secret."""
    later: dict[bytes, int]
    """The index of the first message that contains a span, by span id. Index 0 is left out."""
    log_records: int
    """The number of different log records."""
    resources: Resources


class _Version(NamedTuple):
    """One version of a span, as it was sent. Sorts by start and id."""

    start: int
    span_id: bytes
    end: int
    wire: Any
    scope: str
    scope_spans: Any
    resource_spans: Any
    message: int
    """The index of the first message that contains the span."""

    def body(self) -> bytes:
        """Return the span with its resource and scope, as one serialized `ResourceSpans`."""
        envelope = Envelope.of_messages(self.resource_spans, self.scope_spans)
        return envelope.body(self.wire.SerializeToString(deterministic=True))

    def is_newer(self, other: _Version) -> bool:
        """Return whether this version replaces `other`.

        It does if its end is later. If the ends are equal, the version with greater bytes wins.
        """
        if self.end != other.end:
            return self.end > other.end
        return self.body() > other.body()


def read_run(messages: Iterable[bytes], of_sessions: Iterable[bytes] = ()) -> RunSpans:
    """Return the spans of one run.

    The result does not depend on the order of the messages, or on how the spans are divided among
    them.

    Args:
        messages: Stored messages (`tracer.otel.otlp.spans`) of one trace, with at least one span or
            log record. Their items were checked when they were accepted.
        of_sessions: The stored messages of the own runs (`session_run_id`) of the sessions that
            this run's log records name. Their log records without a trace id are read, too.

    Raises:
        google.protobuf.message.DecodeError: A message cannot be parsed.
    """
    newest: dict[bytes, _Version] = {}
    repeated: dict[bytes, list[_Version]] = {}
    logs: list[LogRecord] = []
    may_hold_masks = False
    for index, message in enumerate(messages):
        may_hold_masks = may_hold_masks or _MASK in message
        data = StoredMessage.FromString(message)
        logs += logs_in(data)
        for resource_spans in data.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                scope = scope_spans.scope.name
                for wire in scope_spans.spans:
                    span_id = wire.span_id
                    version = _Version(
                        wire.start_time_unix_nano,
                        span_id,
                        wire.end_time_unix_nano,
                        wire,
                        scope,
                        scope_spans,
                        resource_spans,
                        index,
                    )
                    earlier = newest.get(span_id)
                    if earlier is None:
                        newest[span_id] = version
                    else:
                        repeated.setdefault(span_id, [earlier]).append(version)
    twins = _tell_apart(newest, repeated)
    later = {version.span_id: version.message for version in newest.values() if version.message}
    logs = merge_logs(logs)
    count = len(logs)
    sessions = frozenset(_sessions(logs))
    others: list[LogRecord] = []
    for message in of_sessions:
        may_hold_masks = may_hold_masks or _MASK in message
        others += [record for record in logs_of([message]) if not any(record.trace_id)]
    logs = merge_logs([*logs, *others]) if others else logs
    newest = {version.span_id: version for version in sorted(newest.values())}
    versions = {span_id: _slim(version) for span_id, version in newest.items()}
    for record in logs:
        event = genai.event_of(record)
        if event is not None and record.span_id in versions:
            versions[record.span_id].events += (event,)
    announced, standing = _replace_pending(versions, newest)
    for pending, span_id in announced.items():
        first = later.get(pending, 0)
        if span_id not in versions or first < later.get(span_id, 0):
            later[span_id] = min(first, later.get(span_id, first))
    spans = list(standing.values())
    _link_parents(spans, standing, twins)
    _correct_times(spans)
    _read(spans, newest)
    present = dialects_of(spans, logs)
    spans = complete_run(spans, logs, present)
    if sessions_of := [each for each in present if each.session is not None]:
        spans = complete_sessions(spans, logs, sessions_of)
    if any(span.parent is not None and span.contradicts(span.parent) for span in spans):
        correct_clocks(spans, newest)
    return RunSpans(
        trace_id=_run_id(newest, logs),
        is_of_session=not newest and not any(any(record.trace_id) for record in logs),
        sessions=sessions,
        spans=spans,
        versions=versions,
        announced=announced,
        may_hold_masks=may_hold_masks,
        later=later,
        log_records=count,
        resources=Resources(newest, logs),
    )


def _tell_apart(
    newest: dict[bytes, _Version], repeated: Mapping[bytes, list[_Version]]
) -> dict[bytes, list[bytes]]:
    """Set the version of each span whose id was sent repeatedly.

    If different spans have one id, the later-started get an id of their own.

    Returns:
        The ids of the different spans of one id, the earliest-started first, by this id.
    """
    twins: dict[bytes, list[bytes]] = {}
    for span_id, versions in repeated.items():
        of_id: list[bytes] = []
        for of_span in spans_with_one_id(versions):
            version = of_span[0]
            for other in of_span[1:]:
                if other.is_newer(version):
                    version = other
            own_id = id_of_later(span_id, version.start) if of_id else span_id
            first = min(each.message for each in of_span)
            newest[own_id] = version._replace(span_id=own_id, message=first)
            of_id.append(own_id)
        if len(of_id) > 1:
            twins[span_id] = of_id
    return twins


def _run_id(versions: Mapping[bytes, _Version], logs: list[LogRecord]) -> bytes:
    """Return the trace id of a run; for log records without a trace, their session's run id."""
    ids: Iterator[bytes] = (version.wire.trace_id for version in versions.values())
    of_logs = (record.trace_id for record in logs if any(record.trace_id))
    return next(chain(ids, of_logs, _sessions(logs)), bytes(TRACE_ID_BYTES))


def _sessions(logs: Iterable[LogRecord]) -> Iterator[bytes]:
    """Yield `session_run_id` of each session that log records name."""
    names = dict.fromkeys(map(session_of, logs))
    return (session_run_id(name) for name in names if name is not None)


def _correct_times(spans: list[SlimSpan]) -> None:
    """Replace a missing start by that of the earliest child, or by the end. No end is before it."""
    missing = {span for span in spans if not span.start}
    for span in spans:
        above = span.parent
        while span.start and above is not None and above in missing:
            above.start = min(above.start or span.start, span.start)
            above = above.parent
    for span in spans:
        span.start = span.start or span.end
        if span.end:
            span.end = max(span.start, span.end)
    if missing:
        spans.sort(key=lambda span: span.order)


def _slim(version: _Version) -> SlimSpan:
    wire = version.wire
    status, events, parent_span_id = wire.status, wire.events, wire.parent_span_id
    attributes = attributes_of(wire.attributes)
    return SlimSpan(
        version.span_id,
        parent_span_id if any(parent_span_id) else None,
        version.start,
        version.end,
        wire.name,
        version.scope,
        status.code,
        status.message,
        attributes,
        events_of(events) if events else (),
        _IS_PARENT_LOCAL[wire.flags & (_PARENT_IS_KNOWN | _PARENT_IS_REMOTE)],
        _continued(links) if (links := wire.links) else (),
        readers_of(version.scope, attributes),
    )


def _continued(links: Any) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(
        (link.trace_id, link.span_id)
        for link in links
        if len(link.trace_id) == _TRACE_ID_BYTES
        and attributes_of(link.attributes).get(CONTINUES) in (True, "true")
    )


CONTINUES = "tracer.continues"
"""The attribute of a span link: the run continues the work of the linked span."""

_TRACE_ID_BYTES = 16


_PARENT_IS_KNOWN, _PARENT_IS_REMOTE = 0x100, 0x200
"""Bits of `Span.flags` in OTLP: whether the emitter states where the parent is, and where it is."""
_IS_PARENT_LOCAL = {
    0: None,
    _PARENT_IS_KNOWN: True,
    _PARENT_IS_REMOTE: False,
    _PARENT_IS_KNOWN | _PARENT_IS_REMOTE: False,
}


def _replace_pending(
    versions: dict[bytes, SlimSpan], received: dict[bytes, _Version]
) -> tuple[dict[bytes, bytes], dict[bytes, SlimSpan]]:
    """Replace each pending span by the unfinished span that it announces.

    If the announced span has arrived, the pending span is only removed.

    Args:
        versions: One version of each span, sorted.
        received: The same versions as they were sent. An entry is added for each announced span
            that has not arrived.

    Returns:
        The id that each pending span announces, and the spans of the run, sorted.
    """
    pending = {span_id: how for span_id, span in versions.items() if (how := pending_of(span))}
    if not pending:
        return {}, versions
    real = {span_id: span for span_id, span in versions.items() if span_id not in pending}
    announced: dict[bytes, bytes] = {}
    sources: dict[bytes, _Version] = {}
    standing: dict[bytes, SlimSpan] = {}
    for pending_id, how in pending.items():
        span = versions[pending_id]
        assert span.parent_span_id is not None
        span_id = announced[span.span_id] = span.parent_span_id
        source = received[span.span_id]._replace(end=0)
        earlier = sources.get(span_id)
        if earlier is None or source.is_newer(earlier):
            sources[span_id] = source
            parent = how.announced_parent(span)
            standing[span_id] = replace(span, span_id=span_id, parent_span_id=parent, end=0)
    received |= {span_id: source for span_id, source in sources.items() if span_id not in real}
    standing |= real
    return announced, dict(sorted(standing.items(), key=lambda item: item[1].order))


def _link_parents(
    spans: list[SlimSpan], by_id: dict[bytes, SlimSpan], twins: Mapping[bytes, list[bytes]]
) -> None:
    """Set the parent of each span. Break cycles of parents at the span with the least id.

    If several spans have the id of a parent, it is the latest that started before the span and had
    not ended when the span started; if there is none, the earliest.
    """
    suspects: list[SlimSpan] = []
    for span in spans:
        parent_id = span.parent_span_id
        if parent_id is None:
            continue
        parent = by_id.get(parent_id)
        for twin in twins.get(parent_id, ()):
            other = by_id.get(twin)
            if other in (None, span):
                continue
            if other.start <= span.start <= (other.end or inf):
                parent = other
        if parent is None:
            span.missing_parent = parent_id
            continue
        span.parent = parent
        if parent.start >= span.start:
            suspects.append(span)  # each circle has a span that does not start after its parent
    cut_circles(suspects)


def _read(spans: list[SlimSpan], versions: dict[bytes, _Version]) -> None:
    """Set the facts of each span, with the dialect that recognizes it."""
    with_parent: list[SlimSpan] = []
    for span in spans:
        if reads_parent(span):
            with_parent.append(span)
        else:
            span.facts = read_span(span)
    children = Counter(span.parent for span in with_parent)
    # Each of many children would read, and keep, too much of the same text.
    too_large = {
        parent
        for parent, count in children.items()
        if parent is not None
        and count > _MOST_CHILDREN
        and count * len(versions[parent.span_id].body()) > _MOST_READ_BYTES
    }
    for span in with_parent:
        span.facts = read_span(span, None if span.parent in too_large else span.parent)


# --- Derive how the work of a span ended: its status, reason and error.
#
# Frameworks and runtimes use exceptions not only for failures, but also to pause a call, to hand
# over and to cancel. The name of the error tells them apart, in every language.

_CANCELLED = re.compile(
    r"(?:context|task|operation|job|future|invocation)?(?:cancell?ed|cancell?ation|abort|aborted)"
    r"(?:error|exception)?|keyboardinterrupt|generatorexit|interruptedexception"
    r"|closedbyinterruptexception|stopagentrun"
)
_TIMED_OUT = re.compile(
    r"(?:api|http|read|write|connect|connection|pool|socket|tool|async|request|function|agent)?"
    r"(?:timeout|timedout|timeoutcancellation)(?:error|exception)?"
    r"|(?:context)?deadlineexceeded(?:error|exception)?|etimedout"
)
_PAUSED = frozenset(
    "graphinterrupt nodeinterrupt graphbubbleup approvalrequired calldeferred"
    " agentrunpaused humanfeedbackpending".split()
)
"""The names of errors by which a framework pauses a call until a person or a system answers. Only
names that a framework raises: programs use others, such as `ApprovalError`, for failures."""
_HANDED_OVER = frozenset(("parentcommand",))
"""The names of errors by which a framework hands control to another agent: the call succeeded."""
_GO_ERRORS = ("context canceled", "context deadline exceeded")
"""Messages of errors that have no class of their own."""
_NO_NAME = re.compile(r"[\s_]+")


class Ending(NamedTuple):
    """How work ended: fields of its record. Texts are in stored form."""

    status: Status
    reason: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_stack: str | None = None


_SUCCEEDED = Ending(Status.SUCCEEDED)
_INTERRUPTED = Ending(Status.CANCELLED, Reason.INTERRUPTED.value)


def ending_of(span: SlimSpan, failure: Reason | None = None, has_failed: bool = False) -> Ending:
    """Return the ending of a span that has ended.

    Args:
        span: The span.
        failure: The reason to store if the work failed.
        has_failed: Whether the work failed even if the span's status is not an error.
    """
    facts = span.facts
    is_error = span.status_code == STATUS_ERROR
    reported = reported_failure(facts.result) if facts.role is Role.TOOL else None
    has_error_type = bool(span.attributes.get("error.type")) and span.status_code != STATUS_OK
    has_failed = is_error or has_failed or reported is not None or has_error_type
    if not has_failed and facts.cancelled is None:
        return _INTERRUPTED if facts.is_interrupted else _SUCCEEDED
    kind, message, stack = error_of(span)
    if facts.cancelled is not None:
        return Ending(Status.CANCELLED, None, stored(facts.cancelled) or None, message, stack)
    names = {_name_in(kind if kind is not None else message)}
    names |= {_name_in(each) for each in _GO_ERRORS if (message or "").endswith(each)}
    if not names.isdisjoint(_HANDED_OVER):
        return _SUCCEEDED
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


# --- Find token counts outside of model calls: of agents without model calls, and of unread spans.

_TOKENS = re.compile(r"(?:^|[._])(?:input|output|prompt|completion|total)_?tokens$", re.IGNORECASE)
"""The ends of the names of attributes with token counts, in any convention."""


@dataclass(slots=True)
class OtherUsage:
    """The spans whose token counts belong to no model call of the run."""

    agents: list[SlimSpan] = field(default_factory=list)
    """Agents with token counts, without model calls below them, sorted. If agents with token counts
    are nested, only the outermost one counts: its usage includes that of the others."""
    unread: list[SlimSpan] = field(default_factory=list)
    """Spans with token counts that no rule reads, sorted."""


def find_usage(spans: list[SlimSpan]) -> OtherUsage:
    """Return the spans with token counts that are no model calls and contain none.

    Args:
        spans: All spans of a run, sorted. `build_tree` must have been applied to them.
    """
    suspects = [
        span
        for span in spans
        if (span.facts.role is Role.AGENT and has_usage(span.facts))
        or (span.facts.role in _WRAPPERS and _has_tokens(span))
    ]
    found = OtherUsage()
    if not suspects:
        return found
    around_models = _ancestors([span for span in spans if span.facts.role is Role.MODEL])
    counted: set[SlimSpan] = set()
    for span in suspects:
        if span in around_models or span.merged_into is not None:
            continue
        above = span.parent
        while above is not None and above not in counted and above.facts.role is not Role.MODEL:
            above = above.parent
        if above is None:
            counted.add(span)
            (found.agents if span.facts.role is Role.AGENT else found.unread).append(span)
    return found


_WRAPPERS = (Role.WRAPPER, Role.WORKFLOW, Role.CHAIN)


def _ancestors(spans: list[SlimSpan]) -> set[SlimSpan]:
    found: set[SlimSpan] = set()
    for span in spans:
        above = span.parent
        while above is not None and above not in found:
            found.add(above)
            above = above.parent
    return found


def has_usage(facts: SpanFacts) -> bool:
    """Return whether a span has token counts, or a cost above zero."""
    return bool(facts.input_tokens or facts.output_tokens or facts.cost_usd)


def _has_tokens(span: SlimSpan) -> bool:
    return any(
        "okens" in name and _TOKENS.search(name) is not None and bool(count(value))
        for name, value in span.attributes.items()
    )


# --- Arrange the spans of a run in a tree of agents, model calls and tool calls.
#
# Wrapper spans are skipped: a span's parent in the tree (`SlimSpan.above`) is the nearest agent,
# model call or tool call above it. If the chain of parents ends at a span that has not arrived, the
# id of this span is stored (`SlimSpan.awaits`). Spans that describe the same work are merged.

NODES = (Role.AGENT, Role.MODEL, Role.TOOL)
"""Roles of spans that become records."""

_FRAMEWORKS = (Role.WORKFLOW, Role.CHAIN)
"""Roles of wrappers that may turn out to be agents."""


def build_tree(spans: list[SlimSpan]) -> None:
    """Set `above` or `awaits` of each span, merge duplicate spans, and find hidden agents.

    Args:
        spans: All spans of a run, sorted, with parents and facts.
    """
    _set_parents(spans)
    if any(span.facts.is_assumed for span in spans) and _correct_assumed_roles(spans):
        _set_parents(spans)
    has_repeats = any(
        (above := span.above) is not None and above.facts.role is span.facts.role for span in spans
    )
    has_frameworks = any(span.facts.role in _FRAMEWORKS for span in spans)
    if has_repeats:
        for merge in (_merge_repeated_tools, _merge_nested_models):
            if merge(spans):
                _set_parents(spans)
    if has_frameworks and _find_hidden_agents(spans):
        _set_parents(spans)
    if (has_repeats or has_frameworks) and _merge_agents(spans):
        _set_parents(spans)


def _set_parents(spans: Iterable[SlimSpan]) -> None:
    wrappers: set[SlimSpan] = set()  # those whose parent is set
    for span in spans:
        parent = span.parent
        if parent is None:
            span.above, span.awaits = None, span.missing_parent
        elif parent.facts.role in NODES:
            span.above, span.awaits = parent, None
        else:
            _climb(parent, wrappers)
            span.above, span.awaits = parent.above, parent.awaits
        if span.facts.role not in NODES:
            wrappers.add(span)


def _climb(wrapper: SlimSpan, done: set[SlimSpan]) -> None:
    """Set `above` or `awaits` of a wrapper and of the wrappers above it.

    Args:
        wrapper: The wrapper.
        done: The wrappers that are already set. The function adds the wrappers that it sets.
    """
    way: list[SlimSpan] = []
    at = wrapper
    while at not in done:
        way.append(at)
        parent = at.parent
        if parent is None:
            at.above, at.awaits = None, at.missing_parent
            break
        if parent.facts.role in NODES:
            at.above, at.awaits = parent, None
            break
        at = parent
    for each in way:
        each.above, each.awaits = at.above, at.awaits
    done.update(way)


def _correct_assumed_roles(spans: list[SlimSpan]) -> bool:
    """Correct the roles of spans whose operation is unknown. Return whether any was corrected.

    A span with a model's name and token counts is no model call if a model call is below it: then
    it is an agent if it has an agent's name. A span with an agent's name is no agent if no work is
    below it, or if the agent above has the same name, which then was only copied.
    """
    roles_below: dict[SlimSpan, set[Role]] = {}
    for span in reversed(spans):
        above = span.above
        while above is not None and span.facts.role in NODES:
            roles = roles_below.setdefault(above, set())
            if span.facts.role in roles:
                break
            roles.add(span.facts.role)
            above = above.above
    has_corrected = False
    for span in spans:
        facts, below = span.facts, roles_below.get(span, set())
        if not facts.is_assumed:
            continue
        if facts.role is Role.MODEL and Role.MODEL in below:
            span.facts = facts._replace(role=Role.AGENT, name=facts.agent)
            has_corrected = True
        if span.facts.role is Role.AGENT:
            above = span.above
            while above is not None and above.facts.role is not Role.AGENT:
                above = above.above
            is_copied = above is not None and above.facts.name == span.facts.name
            if is_copied or not below or not span.facts.name:
                span.facts = span.facts._replace(role=Role.WRAPPER)
                has_corrected = True
    return has_corrected


def represented(span: SlimSpan) -> SlimSpan:
    """Return the span that `span` was merged into; `span` itself if it was not merged."""
    way = []
    while (into := span.merged_into) is not None:
        way.append(span)
        span = into
    for each in way:
        each.merged_into = span
    return span


def _merge(span: SlimSpan, into: SlimSpan) -> None:
    """Merge `span` into `into`. Fields that only `span` has are copied."""
    facts, merged = into.facts, span.facts
    into.facts = facts._replace(
        request=facts.request or merged.request,
        answer=facts.answer or merged.answer,
        conversation=facts.conversation or merged.conversation,
        subject=facts.subject or merged.subject,
    )
    span.merged_into = into
    span.facts = WRAPPER


def _directly_within_its_like(spans: Iterable[SlimSpan], role: Role) -> list[SlimSpan]:
    """Return the spans with this role whose `above` has the same role."""
    return [
        span
        for span in spans
        if span.facts.role is role and span.above is not None and span.above.facts.role is role
    ]


# --- Repeated spans ------------------------------------------------------------------------------


def _merge_repeated_tools(spans: list[SlimSpan]) -> bool:
    """Merge the spans of a tool call that two instrumentations recorded. Keep the outer span.

    Returns:
        Whether any spans were merged.
    """
    nested = _directly_within_its_like(spans, Role.TOOL)
    canonical = Canonical()  # a call may have many calls within it
    has_merged = False
    for span in nested:
        assert span.above is not None
        outer = represented(span.above)
        inner, facts = span.facts, outer.facts
        named_alike = inner.name == facts.name and inner.tool_type in (None, "MCP")
        repeats = inner.is_mcp or (
            inner.arguments is not None and canonical[inner.arguments] == canonical[facts.arguments]
        )
        if (named_alike and repeats) or (inner.is_mcp and inner.name is None):
            outer.facts = facts._replace(
                tool_type="MCP" if inner.is_mcp else facts.tool_type,
                arguments=facts.arguments if facts.arguments is not None else inner.arguments,
                result=facts.result if facts.result is not None else inner.result,
                call_id=facts.call_id or inner.call_id,
                has_failed=facts.has_failed or inner.has_failed,
            )
            _merge(span, outer)
            has_merged = True
    return has_merged


_Children = dict[SlimSpan, list[SlimSpan]]
"""The spans of model calls directly inside the span of each model call."""


def _merge_nested_models(spans: list[SlimSpan]) -> bool:
    """Merge nested model spans into the outermost span, so that tokens are counted once.

    Returns:
        Whether any spans were merged.
    """
    children_of: _Children = {}
    for span in _directly_within_its_like(spans, Role.MODEL):
        assert span.above is not None
        if not _is_later_call(span, span.above):
            children_of.setdefault(span.above, []).append(span)
    has_sums = False
    for outer in [*children_of]:
        if _is_sum(outer.facts, [span.facts for span in children_of[outer]]):
            outer.facts = outer.facts._replace(role=Role.WRAPPER)
            has_sums = True
            del children_of[outer]
        elif not (same := [span for span in children_of[outer] if _is_same_call(span, outer)]):
            del children_of[outer]
        else:
            children_of[outer] = same
    inner = {span for children in children_of.values() for span in children}
    for outer in sorted(children_of.keys() - inner, key=lambda span: span.order):
        _merge_models_into(outer, children_of)
    return has_sums or bool(children_of)


def _is_later_call(span: SlimSpan, outer: SlimSpan) -> bool:
    """Return whether a model call is one of its own, although its parent is another model call.

    It is if it starts after the outer one has ended, and both have counts: some emitters attach the
    next call to the span of the one before.
    """
    is_later = bool(outer.end) and span.start >= outer.end
    return is_later and _has_counts(span.facts) and _has_counts(outer.facts)


def _is_sum(outer: SpanFacts, inner: list[SpanFacts]) -> bool:
    """Return whether a span counts the tokens of several model calls inside it: it wraps them."""
    counted = [facts for facts in inner if _has_counts(facts)]
    return (
        len(counted) > 1
        and outer.input_tokens == _sum(each.input_tokens for each in counted)
        and outer.output_tokens == _sum(each.output_tokens for each in counted)
    )


def _is_same_call(span: SlimSpan, outer: SlimSpan) -> bool:
    """Return whether two nested spans describe one model call.

    They do if their usage or their answer is equal, or if neither can be compared, because one of
    the spans lacks it.
    """
    inner, around = span.facts, outer.facts
    pairs = [
        (inner.input_tokens, around.input_tokens),
        (inner.output_tokens, around.output_tokens),
    ]
    used = [one == other for one, other in pairs if one is not None and other is not None]
    answers = [((each.answer or "").strip(), each.chosen) for each in (inner, around)]
    can_compare_answers = all(map(any, answers))
    if used and all(used):
        return True
    if can_compare_answers and answers[0] == answers[1]:
        return True
    return not used and not can_compare_answers


def _merge_models_into(outer: SlimSpan, children: _Children) -> None:
    below: list[SlimSpan] = []
    waiting = list(children[outer])
    while waiting:
        span = waiting.pop()
        below.append(span)
        waiting += children.get(span, ())
    below.sort(key=lambda span: span.order)
    facts = outer.facts
    all_facts = [span.facts for span in below]
    latest = [*reversed(all_facts)]
    counts = _outermost(outer, children, _has_counts)
    costs = [each.cost_usd or Decimal(0) for each in _outermost(outer, children, _has_cost)]
    outer.facts = facts._replace(
        requested_model=facts.requested_model or _first(r.requested_model for r in all_facts),
        model=facts.model or _first(r.model for r in latest),
        provider=facts.provider or _first(r.provider for r in all_facts),
        request=facts.request or _first(r.request for r in all_facts),
        messages=facts.messages or _first(r.messages for r in all_facts),
        answer=facts.answer or _first(r.answer for r in latest),
        reasoning=facts.reasoning or _first(r.reasoning for r in latest),
        executed=facts.executed or next((r.executed for r in latest if r.executed), ()),
        chosen=facts.chosen or next((r.chosen for r in latest if r.chosen), ()),
        input_tokens=_sum(r.input_tokens for r in counts),
        output_tokens=_sum(r.output_tokens for r in counts),
        cache_read_tokens=_sum(r.cache_read_tokens for r in counts),
        cache_written_tokens=_sum(r.cache_written_tokens for r in counts),
        reasoning_tokens=_sum(r.reasoning_tokens for r in counts),
        cache_written_hour_tokens=_sum(r.cache_written_hour_tokens for r in counts),
        audio_input_tokens=_sum(r.audio_input_tokens for r in counts),
        audio_output_tokens=_sum(r.audio_output_tokens for r in counts),
        service_tier=facts.service_tier or _first(r.service_tier for r in all_facts),
        parameters=facts.parameters or _first(r.parameters for r in all_facts),
        offered_tools=facts.offered_tools or _first(r.offered_tools for r in all_facts),
        finish_reasons=facts.finish_reasons
        or next((r.finish_reasons for r in latest if r.finish_reasons), ()),
        graph_node=facts.graph_node or _first(r.graph_node for r in all_facts),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
    )
    for span in below:
        _merge(span, outer)


def _outermost(
    outer: SlimSpan, children: _Children, has: Callable[[SpanFacts], bool]
) -> list[SpanFacts]:
    """Return the facts of the outermost spans that satisfy `has`, in a tree of model spans."""
    outermost = []
    waiting = [outer]
    while waiting:
        span = waiting.pop()
        if has(span.facts):
            outermost.append(span.facts)
        else:
            waiting += children.get(span, ())
    return outermost


def _has_counts(facts: SpanFacts) -> bool:
    return facts.input_tokens is not None or facts.output_tokens is not None


def _has_cost(facts: SpanFacts) -> bool:
    return facts.cost_usd is not None


def _first(texts: Iterable[str | None]) -> str | None:
    return next((each for each in texts if each), None)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


# --- Hidden agents -------------------------------------------------------------------------------


def _find_hidden_agents(spans: list[SlimSpan]) -> bool:
    """Turn workflows and chains into agents if a tool started them and they work like an agent.

    A chain works like an agent if a model call and a tool call are inside it. For a workflow, a
    model call is sufficient. Neither may contain an agent.

    Returns:
        Whether any span became an agent.
    """
    outermost = _outermost_frameworks(spans)
    roles_within: dict[SlimSpan, set[Role]] = {}
    for span in spans:
        if span.above is None or span.above.facts.role is not Role.TOOL:
            continue
        wrapper = outermost.get(span.parent) if span.parent is not None else None
        if wrapper is not None and span.facts.role in NODES:
            roles_within.setdefault(wrapper, set()).add(span.facts.role)
    empty = _empty_agents(spans) if roles_within else {}
    has_hidden = False
    for wrapper, roles in roles_within.items():
        is_workflow = wrapper.facts.role is Role.WORKFLOW
        needed = {Role.MODEL} if is_workflow else {Role.MODEL, Role.TOOL}
        if Role.AGENT in roles or not needed <= roles:
            continue
        wrapper.facts = wrapper.facts._replace(role=Role.AGENT)
        empty_siblings = empty.get((wrapper.parent, wrapper.facts.name), [])
        if empty_siblings and empty_siblings[-1].start <= wrapper.start:
            # Some emitters name an agent only in an empty span, a sibling of the agent's work.
            _merge(empty_siblings.pop(), wrapper)
        has_hidden = True
    return has_hidden


def _empty_agents(
    spans: list[SlimSpan],
) -> dict[tuple[SlimSpan | None, str | None], list[SlimSpan]]:
    """Return the agents without children, by parent and name. In each list, the latest is first."""
    parents = {span.parent for span in spans}
    agents: dict[tuple[SlimSpan | None, str | None], list[SlimSpan]] = {}
    for span in reversed(spans):
        if span.facts.role is Role.AGENT and span not in parents:
            agents.setdefault((span.parent, span.facts.name), []).append(span)
    return agents


def _outermost_frameworks(spans: Iterable[SlimSpan]) -> dict[SlimSpan, SlimSpan | None]:
    """Return for each wrapper the outermost workflow or chain in its chain of parents.

    The search ends at the nearest agent, model call or tool call above the wrapper.
    """
    outermost_of: dict[SlimSpan, SlimSpan | None] = {}
    for span in spans:
        way = []
        at: SlimSpan | None = span
        while at is not None and at not in outermost_of and at.facts.role not in NODES:
            way.append(at)
            at = at.parent
        outermost = outermost_of.get(at) if at is not None else None
        for each in reversed(way):
            if outermost is None and each.facts.role in _FRAMEWORKS:
                outermost = each
            outermost_of[each] = outermost
    return outermost_of


def _merge_agents(spans: list[SlimSpan]) -> bool:
    """Merge two nested agents of the same name, if the outer one contains nothing else.

    Returns:
        Whether any agents were merged.
    """
    holders = {span.above for span in _directly_within_its_like(spans, Role.AGENT)}
    if not holders:
        return False
    below: dict[SlimSpan, list[SlimSpan]] = {}
    for span in spans:
        if span.above is not None and span.above in holders and span.facts.role in NODES:
            below.setdefault(span.above, []).append(span)
    has_merged = False
    for outer in reversed([span for span in spans if span.facts.role is Role.AGENT]):
        inner = below.get(outer, [])
        if len(inner) != 1:
            continue
        held = represented(inner[0])
        if held.facts.role is Role.AGENT and held.facts.name == outer.facts.name:
            _merge(outer, held)
            has_merged = True
    return has_merged
