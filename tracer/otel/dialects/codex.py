"""Codex CLI 0.169: its spans and its log records.

Three kinds of spans become records: the span of a turn is an agent, `run_sampling_request` is a
model call, and the span that dispatches a tool is a tool call. Nearly all other spans are internal
to Codex and are ignored.

- Spans contain the lineage and the token counts. Log records contain the content. Either signal may
  be missing.
- A span is exported when it ends, a log record within a second. For work that only log records
  name, this module creates spans. When the real span arrives, its record keeps the id
  (`SlimSpan.lasting_id`).
- Spans of turns, model calls and tool calls contain the id of their turn. They are linked to their
  agent by this id, even if the spans in between have not arrived.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import Any, NamedTuple

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    count,
    cut_circles,
    first_text,
    synthetic_span,
    text,
)
from tracer.records.arguments import parsed
from tracer.records.spans import SPAN_ID_BYTES, STATUS_ERROR, Attributes, LogRecord, ReadableSpan

SCOPE = "codex"
"""The beginning of the names of all scopes of Codex: `codex_exec`, `codex_otel.log_only` …"""

_NODES = (Role.AGENT, Role.MODEL, Role.TOOL)
_AGENTS = ("session_task.turn", "session_task.review", "session_task.compact")
_SAMPLING = "codex.sampling"
"""The span of the part of a model call that ends with the answer. The span of the whole model call
also contains the tool calls, which run longer."""
_MODEL = "run_sampling_request"
_INPUT = "codex.turn_input"
_OF_TURNS = (_INPUT, "run_turn", "try_run_sampling_request", _SAMPLING)
"""Names of spans that occur only in the trace of their turn. Other spans that contain a turn id may
be in other traces."""
_CONVERSATIONS = ("conversation.id", "thread_id")
_TURNS = ("turn.id", "turn_id")
_NAMESPACES = ("multi_agent_v1", "collaboration", "functions")
"""The namespaces of tools. In a span, the namespace and the name of the tool are one word."""
_REDACTED = "[REDACTED]"
_EXIT_CODE = re.compile(
    r"(?:Chunk ID: .*\n)?Wall time: .*\nProcess exited with code (-?\d{1,10})\n"
    r"|Exit code: (-?\d{1,10})\n"
)
_ROOT = "/root"

_PROMPT = "codex.user_prompt"
_DECISION = "codex.tool_decision"
_RESULT = "codex.tool_result"
_REQUESTS = ("codex.api_request", "codex.websocket_request")
_STARTS = "codex.conversation_starts"
_MESSAGE = "codex.agent_communication"
_STREAM = "codex.sse_event"
_WORK = (_PROMPT, _DECISION, _RESULT, *_REQUESTS)
"""Names of log records that are written only during a turn."""

_SOON = 2_000_000
"""The maximum time in nanoseconds from the end of the span with the token counts to the end of the
model's answer."""

_MOST_OPEN = 100
"""The limit of two searches: among model calls for the owner of token counts, and among tool calls
with the same id for the call of a log record. Above it, the token counts are ignored."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Codex; None for any other span."""
    if not span.scope.startswith(SCOPE):
        return None
    attributes = span.attributes
    if "codex.tool.phase" in attributes:
        return SpanFacts(
            Role.TOOL,
            name=_bare_name(first_text(attributes, ("tool_name",)) or span.name),
            conversation=first_text(attributes, _CONVERSATIONS),
            call_id=first_text(attributes, ("call_id",)),
            cancelled="aborted" if attributes.get("aborted") is True else None,
        )
    if span.name in _AGENTS:
        return SpanFacts(Role.AGENT, name="codex")
    if span.name == _MODEL:
        return SpanFacts(Role.MODEL, model=first_text(attributes, ("model",)))
    return WRAPPER


def _bare_name(name: str) -> str:
    for namespace in _NAMESPACES:
        if name.startswith(namespace) and name != namespace:
            return name.removeprefix(namespace)
    return name


def complete(spans: list[SlimSpan], logs: list[LogRecord]) -> list[SlimSpan]:
    """Add content from log records to spans. Create spans for work that only log records name.

    Args:
        spans: The run's spans.
        logs: The run's log records, sorted by time. They include records without a trace id from
            the same conversations. Such records may belong to other turns.
    """
    run = _CodexRun(
        [span for span in spans if span.scope.startswith(SCOPE)],
        [record for record in logs if record.scope.startswith(SCOPE)],
    )
    run.find_turns()
    run.find_model_calls()
    run.find_calls()
    run.place_agents()
    if not run.made:
        return spans
    return sorted([*spans, *run.made], key=lambda span: span.order)


# --- What a run consists of ----------------------------------------------------------------------


class _Counts(NamedTuple):
    """The token counts of a model call."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_written: int | None


class _HttpRequest(NamedTuple):
    """One HTTP or WebSocket request to the model's provider."""

    start: int
    time: int
    """When the response began."""
    span_id: bytes
    conversation: str | None
    model: str | None
    error: str | None


@dataclass(slots=True, eq=False)
class _ModelCall:
    start: int
    span: SlimSpan | None
    """The span of the model call. If it has not arrived, `_CodexRun._settle` creates one."""
    until: int = 0
    """When the answer was complete; 0 if that is unknown."""
    requests: list[_HttpRequest] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    """The ids of spans that are parts of the model call, but have no parent link to its span."""
    counts: list[_Counts] = field(default_factory=list)
    error: str | None = None

    @property
    def is_answered(self) -> bool:
        """Whether a request of this model call succeeded.

        A later request then belongs to the next model call.
        """
        return bool(self.until) or any(request.error is None for request in self.requests)


@dataclass(slots=True, eq=False)
class _Turn:
    turn_id: str | None
    """The id of the turn; None if only log records show that the turn exists."""
    start: int
    conversation: str | None = None
    span: SlimSpan | None = None
    input: SlimSpan | None = None
    """The span of the input that started the turn."""
    model_calls: list[_ModelCall] = field(default_factory=list)
    """The model calls of the turn, sorted by start."""

    def latest_call(self, time: int) -> _ModelCall | None:
        """Return the latest model call of the turn that began at `time` or earlier."""
        at = bisect_right(self.model_calls, time, key=lambda call: call.start) - 1
        return self.model_calls[at] if at >= 0 else None


class _Evidence(NamedTuple):
    """A log record or a span that proves that a tool call exists. The call's span has not arrived.

    Instances sort by time.
    """

    time: int
    is_result: bool
    span_id: bytes
    is_span: bool
    attributes: Attributes


class _DetachedPart(NamedTuple):
    """A part of a model call that cannot be linked to the call's own span by ids.

    The part is an HTTP request or a `codex.sampling` span.
    """

    start: int
    end: int
    span_id: bytes
    request: _HttpRequest | None = None


class _Way(NamedTuple):
    """The result of following the parent links of a span upwards."""

    node: SlimSpan | None
    """The first agent, model call or tool call, which may be the span itself."""
    top: SlimSpan
    """The last ancestor that has arrived."""


_Key = tuple[str, str]
"""The id of a conversation and the id of a tool call in it."""


class _CodexRun:
    def __init__(self, spans: list[SlimSpan], logs: list[LogRecord]) -> None:
        self.made: list[SlimSpan] = []
        self._spans = spans
        self._logs = logs
        self._by_id = {span.span_id: span for span in spans}
        self._orphans: dict[bytes, list[SlimSpan]] = {}
        for span in spans:
            if span.missing_parent is not None:
                self._orphans.setdefault(span.missing_parent, []).append(span)
        self._ways = _ways_up(spans)
        self._turns: dict[str, _Turn] = {}
        self._by_conversation: dict[str, list[_Turn]] = {}
        self._loose: list[_Turn] = []
        """Turns whose conversation is not known."""
        self._call_of: dict[SlimSpan, _ModelCall] = {}
        """The model call that each span with the role `MODEL` describes."""
        self._call_spans: dict[bytes, SlimSpan] = {}
        """The span of a tool call, by the span id in the log record with the call's result."""
        self._work: list[tuple[SlimSpan, _Turn]] = []
        """The spans of model calls and tool calls, each with its turn."""
        self._of_turn: dict[_Turn, list[SlimSpan]] = {}
        self._taken: set[bytes] = set()
        self._streams: dict[str, list[LogRecord]] = {}
        """The log records of streamed responses, by conversation and sorted by time."""
        for record in logs:
            if record.name == _STREAM and (conversation := _conversation(record)) is not None:
                self._streams.setdefault(conversation, []).append(record)

    def _lasting_id(self, *names: str | bytes | None) -> bytes:
        """Return an id that depends only on the emitter's ids, and that no other span has."""
        hashed = sha256(SCOPE.encode())
        for name in names:
            part = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name or b""
            hashed.update(len(part).to_bytes(8) + part)
        made = hashed.digest()[:SPAN_ID_BYTES]
        while made in self._taken:
            hashed.update(b"+")
            made = hashed.digest()[:SPAN_ID_BYTES]
        self._taken.add(made)
        return made

    def _make(self, span_id: bytes, start: int, end: int, name: str, facts: SpanFacts) -> SlimSpan:
        span = synthetic_span(span_id, name, SCOPE, (start, end), facts)
        span.lasting_id = span_id
        self.made.append(span)
        return span

    # --- Turns -----------------------------------------------------------------------------------

    def find_turns(self) -> None:
        """Find the turns of this run, from spans that contain turn ids and from log records."""
        conversations: dict[str, str] = {}
        inputs: dict[str, SlimSpan] = {}
        for span in self._spans:
            attributes = span.attributes
            turn_id = first_text(attributes, _TURNS)
            if turn_id is not None:
                conversation = first_text(attributes, _CONVERSATIONS)
                if conversation is not None:
                    conversations.setdefault(turn_id, conversation)
                if span.facts.role in _NODES or span.name in _OF_TURNS:
                    turn = self._turns.setdefault(turn_id, _Turn(turn_id, span.start))
                    if span.facts.role is Role.AGENT and turn.span is None:
                        turn.span = span
                if span.name == _INPUT:
                    inputs[turn_id] = span
            elif span.name.startswith("op.dispatch."):
                submission = first_text(attributes, ("submission.id",))
                if submission is not None:
                    inputs.setdefault(submission, span)
        for turn in self._turns.values():
            assert turn.turn_id is not None
            turn.conversation = conversations.get(turn.turn_id)
            turn.input = inputs.get(turn.turn_id)
            if turn.conversation is None:
                self._loose.append(turn)
            else:
                self._by_conversation.setdefault(turn.conversation, []).append(turn)
        for record in self._logs:
            conversation = _conversation(record)
            if record.name in _WORK and _has_trace(record) and conversation is not None:
                turn = _Turn(None, record.time, conversation)
                self._by_conversation.setdefault(conversation, [turn])
        for turns in self._by_conversation.values():
            turns.sort(key=lambda turn: (turn.start, turn.turn_id or ""))

    def _turn_of_span(self, span: SlimSpan) -> _Turn | None:
        turn_id = first_text(span.attributes, _TURNS)
        return self._turns.get(turn_id) if turn_id is not None else None

    def _turn_at(self, span_id: bytes | None, conversation: str | None, time: int) -> _Turn | None:
        """Return the turn that a log record belongs to.

        If the record's span has not arrived, the conversation's latest turn before `time` is used.
        """
        span = self._by_id.get(span_id or b"")
        node = self._ways[span].node if span is not None else None
        turn = self._turn_of_span(node) if node is not None else None
        if turn is not None:
            return turn
        turns = self._by_conversation.get(conversation or "")
        if not turns:
            return None
        return turns[max(bisect_right(turns, time, key=lambda each: each.start) - 1, 0)]

    def _all_turns(self) -> Iterable[_Turn]:
        for turns in self._by_conversation.values():
            yield from turns
        yield from self._loose

    # --- Model calls -----------------------------------------------------------------------------

    def find_model_calls(self) -> None:
        """Find the model calls of each turn, with their requests, token counts and errors.

        Parts of one call overlap in time. The token counts are on a span inside the call, or else
        in a log record that names no span.
        """
        for span in self._spans:
            if span.facts.role is Role.MODEL:
                call = self._call_of[span] = _ModelCall(span.start, span)
                turn = self._turn_of_span(span)
                if turn is not None:
                    turn.model_calls.append(call)
                    self._work.append((span, turn))
        self._add_parts()
        for conversation, turns in self._by_conversation.items():
            calls = [call for turn in turns for call in turn.model_calls]
            self._add_stream(conversation, sorted(calls, key=lambda call: call.start))
        self._add_counts()
        for turn in self._all_turns():
            for call in turn.model_calls:
                self._settle(turn, call)

    def _add_parts(self) -> None:
        """Assign requests and `codex.sampling` spans to model calls.

        Create a model call for parts whose own call has not arrived.
        """
        parts: dict[_Turn, list[_DetachedPart]] = {}
        for request in self._requests():
            span = self._by_id.get(request.span_id)
            node = self._ways[span].node if span is not None else None
            if node in self._call_of:
                self._call_of[node].requests.append(request)
            elif turn := self._turn_at(request.span_id, request.conversation, request.time):
                part = _DetachedPart(request.start, request.time, request.span_id, request)
                parts.setdefault(turn, []).append(part)
        for span in self._spans:
            if span.name != _SAMPLING:
                continue
            node = self._ways[span].node
            if node in self._call_of:
                call = self._call_of[node]
                call.until = max(call.until, span.end)
            elif turn := self._turn_of_span(span):
                parts.setdefault(turn, []).append(_DetachedPart(span.start, span.end, span.span_id))
        for turn, turn_parts in parts.items():
            for part in sorted(turn_parts, key=lambda each: each[:3]):
                call = _call_over(turn, part)
                call.parts.append(part.span_id)
                if part.request is not None:
                    call.requests.append(part.request)
                else:
                    call.until = max(call.until, part.end)

    def _requests(self) -> Iterable[_HttpRequest]:
        """Return all requests to the provider, from log records and from span events."""
        requests: dict[tuple[bytes, Any], _HttpRequest] = {}
        for record in self._logs:
            if record.name in _REQUESTS and record.span_id is not None and _has_trace(record):
                key = record.span_id, text(record.attributes.get("attempt"))
                requests.setdefault(
                    key, _request_of(record.span_id, record.time, record.attributes)
                )
        for span in self._spans:
            for event in span.events:
                if event.attributes.get("event.name") in _REQUESTS:
                    key = span.span_id, text(event.attributes.get("attempt"))
                    requests.setdefault(
                        key, _request_of(span.span_id, event.time, event.attributes)
                    )
        return sorted(requests.values(), key=lambda each: (each.time, each.span_id, each.start))

    def _add_stream(self, conversation: str, calls: list[_ModelCall]) -> None:
        """Add token counts and errors from log records of streamed responses.

        These records name only the conversation. A call therefore gets the first completion after
        its request. It gets none if another response began before that completion.
        """
        stream = self._streams.get(conversation, [])
        times = [record.time for record in stream]
        for number, call in enumerate(calls):
            last: float = calls[number + 1].start if number + 1 < len(calls) else inf
            if call.span is not None and call.span.end:
                last = min(last, call.span.end)
            answered = [request.time for request in call.requests if request.error is None]
            responses = max(len(answered), 1)
            begin = min(answered, default=call.start)
            # The first record of a response may have the same time as that of its request.
            at = bisect_right(times, begin - 1)
            while at < len(stream) and times[at] <= last:
                attributes = stream[at].attributes
                kind = attributes.get("event.kind")
                responses -= kind == "response.created"
                if responses < 0:
                    break
                counts = _counts(attributes, _STREAM_COUNTS)
                if kind == "response.completed" and counts is not None:
                    call.until = call.until or times[at]
                    call.counts.append(counts)
                    call.error = None
                    break
                call.error = first_text(attributes, ("error.message",)) or call.error
                at += 1

    def _add_counts(self) -> None:
        """Add token counts from spans. They replace token counts from log records."""
        by_call: dict[_ModelCall, list[_Counts]] = {}
        loose: list[tuple[SlimSpan, _Counts]] = []
        turns: dict[bytes | None, _Turn] = {}
        for span in self._spans:
            if span.facts.role is Role.TOOL and span.parent is not None:
                turn = self._turn_of_span(span)
                if turn is not None:
                    turns.setdefault(self._ways[span.parent].top.missing_parent, turn)
            counts = _counts(span.attributes, _SPAN_COUNTS)
            if counts is None:
                continue
            node = self._ways[span].node
            if node in self._call_of:
                by_call.setdefault(self._call_of[node], []).append(counts)
            elif node is None:
                loose.append((span, counts))
        open_calls = [
            call for turn in self._all_turns() for call in turn.model_calls if call.span is None
        ]
        for span, counts in loose:
            top = self._ways[span].top
            named = turns.get(top.missing_parent) if top.missing_parent is not None else None
            if named is not None:
                latest = named.latest_call(span.start)
                candidates = [latest] if latest is not None and latest.span is None else []
            else:
                candidates = open_calls if len(open_calls) <= _MOST_OPEN else []
            fitting = [
                call
                for call in candidates
                if call.start <= span.start and span.end <= call.until <= span.end + _SOON
            ]
            if len(fitting) == 1:
                by_call.setdefault(fitting[0], []).append(counts)
                fitting[0].parts.append(span.span_id)
        for call, token_counts in by_call.items():
            call.counts = token_counts

    def _settle(self, turn: _Turn, call: _ModelCall) -> None:
        """Set the fields, the status and the end of a model call's span.

        If that span has not arrived, a span is created.
        """
        first = min(call.requests, key=lambda each: (each.time, each.span_id), default=None)
        lasting_id = None
        if first is not None:
            lasting_id = self._lasting_id("model", first.span_id)
        elif call.span is None:
            lasting_id = self._lasting_id("model", call.parts[0])
        if call.span is None:
            assert lasting_id is not None
            facts = SpanFacts(Role.MODEL, model=first.model if first is not None else None)
            call.span = self._make(lasting_id, call.start, call.until, _MODEL, facts)
            self._work.append((call.span, turn))
            for part in call.parts:
                self._attach(part, call.span)
        span = call.span
        span.lasting_id = lasting_id
        if span.end and call.until:
            span.end = call.until  # the calls that it chose run longer
        if call.counts:
            span.facts = span.facts._replace(
                input_tokens=_sum(each.input for each in call.counts),
                output_tokens=_sum(each.output for each in call.counts),
                cache_read_tokens=_sum(each.cache_read for each in call.counts),
                cache_written_tokens=_sum(each.cache_written for each in call.counts),
            )
        errors = [request.error for request in call.requests]
        error = call.error or (errors[-1] if errors and None not in errors else None)
        if error is not None and not call.counts:
            span.status_code, span.status_message = STATUS_ERROR, error
            if not span.end:
                span.end = call.requests[-1].time if call.requests else 0

    def _attach(self, span_id: bytes, span: SlimSpan) -> None:
        """Make `span` the parent of a detached part, if no agent or call is above the part.

        Args:
            span_id: The id of the part.
            span: The span of the model call or tool call.
        """
        part = self._by_id.get(span_id)
        if part is None:
            return
        way = self._ways[part]
        if way.node is None and way.top.missing_parent is not None:
            way.top.parent, way.top.missing_parent = span, None

    # --- Calls -----------------------------------------------------------------------------------

    def find_calls(self) -> None:
        """Find the tool calls, and add their arguments and results.

        A call without its own span is found by its log records, or by spans inside it.
        """
        dispatched: dict[_Key, list[SlimSpan]] = {}
        for span in self._spans:
            key = _key(span.attributes)
            if span.facts.role is Role.TOOL and key is not None:
                dispatched.setdefault(key, []).append(span)
        results: dict[SlimSpan, LogRecord] = {}
        lost: dict[_Key, list[_Evidence]] = {}
        for record in self._logs:
            key = _key(record.attributes)
            if record.name not in (_DECISION, _RESULT) or key is None or not _has_trace(record):
                continue
            is_result = record.name == _RESULT
            call = self._dispatch_of(record, dispatched.get(key, ()))
            if call is None:
                span_id = record.span_id or b""
                evidence = _Evidence(record.time, is_result, span_id, False, record.attributes)
                lost.setdefault(key, []).append(evidence)
            elif is_result:
                results.setdefault(call, record)
        for span in self._spans:
            key = _key(span.attributes)
            if key is None or span.facts.role in _NODES:
                continue
            node = self._ways[span].node
            if (node is None or node.facts.role is not Role.TOOL) and key not in dispatched:
                evidence = _Evidence(span.start, False, span.span_id, True, span.attributes)
                lost.setdefault(key, []).append(evidence)
        for call, record in results.items():
            _add_result(call, record.attributes)
            self._call_spans[record.span_id or b""] = call
        for key in sorted(dispatched.keys() | lost.keys()):
            made = self._made_calls(key, lost.get(key, ()))
            known = sorted([*dispatched.get(key, ()), *made], key=lambda span: span.order)
            for number, span in enumerate(known):
                span.lasting_id = self._lasting_id("call", *key, str(number) if number else None)
                turn = self._turn_of_span(span) or self._turn_at(None, key[0], span.start)
                if turn is not None:
                    self._work.append((span, turn))
            for span in made:
                assert span.lasting_id is not None
                span.span_id = span.lasting_id

    def _dispatch_of(self, record: LogRecord, calls: Sequence[SlimSpan]) -> SlimSpan | None:
        """Return the tool call that a log record describes; None if its span has not arrived.

        If several calls have the same id, the call that was running at the record's time is used.
        """
        span = self._by_id.get(record.span_id or b"")
        node = self._ways[span].node if span is not None else None
        if node is not None and node.facts.role is Role.TOOL:
            return node
        at = bisect_right(calls, record.time, key=lambda call: call.start)
        for call in reversed(calls[max(at - _MOST_OPEN, 0) : at]):
            if not call.end or record.time <= call.end:
                return call
        return None

    def _made_calls(self, key: _Key, signs: Iterable[_Evidence]) -> list[SlimSpan]:
        """Create a span for each tool call with this id whose own span has not arrived.

        Args:
            key: The conversation and the call id.
            signs: The log records and spans that prove that the calls exist.
        """
        made: list[SlimSpan] = []
        is_decided = has_ended = True
        for sign in sorted(signs, key=lambda each: each[:3]):
            is_decision = not sign.is_result and not sign.is_span
            if not made or has_ended or (is_decision and is_decided):
                facts = SpanFacts(Role.TOOL, conversation=key[0], call_id=key[1])
                made.append(self._make(b"", sign.time, 0, "", facts))
                is_decided = has_ended = False
            call = made[-1]
            is_decided = is_decided or is_decision
            name = first_text(sign.attributes, ("tool_name",))
            if name is not None:
                call.facts = call.facts._replace(name=_bare_name(name))
            if sign.is_result:
                has_ended = True
                call.start = min(call.start, max(sign.time - _duration(sign.attributes), 0))
                call.end = sign.time
                _add_result(call, sign.attributes)
                self._call_spans[sign.span_id] = call
            self._attach(sign.span_id, call)
            for orphan in self._orphans.get(sign.span_id, ()):
                orphan.parent, orphan.missing_parent = call, None
        return made

    # --- Agents ----------------------------------------------------------------------------------

    def place_agents(self) -> None:
        """Create missing agents, and link work to its agent and agents to their tool calls."""
        turns = sorted(
            self._all_turns(),
            key=lambda turn: (turn.start, turn.turn_id or "", turn.conversation or ""),
        )
        self._set_agents(turns)
        made = set(self.made)
        for span, turn in self._work:
            assert turn.span is not None
            is_made = span in made
            if not is_made and span.parent is not None and self._ways[span.parent].node is not None:
                continue
            _set_parent(span, turn.span)
            if is_made and not span.end and turn.span.end:
                span.end = max(turn.span.end, span.start)
                span.facts = span.facts._replace(is_interrupted=True)
            if span.facts.role is Role.TOOL:
                awaits_round = not self._is_of_latest(turn, span, is_made)
                span.facts = span.facts._replace(awaits_round=awaits_round)
        logged = self._read_logs()
        self._link_agents(turns, logged)
        for turn in turns:
            assert turn.span is not None
            span, conversation = turn.span, turn.conversation or ""
            request = logged.requests.get(turn) or logged.messages.get(turn.turn_id or conversation)
            ended = logged.ends.get(conversation, 0)
            if span in made and self._latest(turn) < ended:
                span.end = ended
            span.facts = span.facts._replace(
                name=logged.names.get(conversation, "codex"),
                conversation=turn.conversation,
                request=request,
                title=request,
                answer=logged.answers.get(conversation),
            )
        cut_circles([*self._spans, *self.made])

    def _is_of_latest(self, turn: _Turn, span: SlimSpan, is_made: bool) -> bool:
        """Return whether the latest model call before a tool call chose this tool call.

        Codex starts a tool call before the model's answer is complete. If the end of the answer is
        unknown, the tool call must begin before any event of a later answer.
        """
        latest = turn.latest_call(span.start)
        if latest is None:
            return False
        if not is_made:
            return span.start <= latest.until
        stream = self._streams.get(turn.conversation or "", [])
        at = bisect_right(stream, latest.until, key=lambda record: record.time)
        return not latest.until or at == len(stream) or stream[at].time >= span.start

    def _set_agents(self, turns: list[_Turn]) -> None:
        """Set the agent span of each turn. Create the span if it has not arrived."""
        for span, turn in self._work:
            self._of_turn.setdefault(turn, []).append(span)
        seen: set[str | None] = {None}
        for turn in turns:
            turn_id = turn.turn_id if turn.conversation in seen else None
            seen.add(turn.conversation)
            lasting_id = self._lasting_id("agent", turn.conversation, turn_id)
            if turn.span is None:
                work = self._of_turn.get(turn, ())
                start = min([turn.start, *(span.start for span in work)])
                turn.span = self._make(
                    lasting_id, start, 0, _AGENTS[0], SpanFacts(Role.AGENT, name="codex")
                )
                if turn.input is not None:
                    _set_parent(turn.span, turn.input)
            turn.span.lasting_id = lasting_id

    def _read_logs(self) -> _LoggedFacts:
        logged = _LoggedFacts()
        outputs: list[tuple[LogRecord, Any]] = []
        for record in self._logs:
            attributes, conversation = record.attributes, _conversation(record)
            if not _has_trace(record):
                continue
            if record.name == _PROMPT:
                turn = self._turn_at(record.span_id, conversation, record.time)
                prompt = _content(attributes, "prompt")
                if turn is not None and prompt is not None:
                    logged.requests.setdefault(turn, prompt)
            elif record.name == _STARTS and conversation is not None:
                logged.children.add(conversation)
            elif record.name == _MESSAGE:
                receiver = first_text(attributes, ("receiver_thread_id",))
                message = _content(attributes, "content")
                if attributes.get("kind") == "spawn" and receiver is not None and record.span_id:
                    logged.openers.setdefault(receiver, record.span_id)
                    logged.receivers.setdefault(record.span_id, receiver)
                    if message is not None:
                        communication = first_text(attributes, ("communication_id",)) or ""
                        logged.messages.setdefault(communication, message)
                        logged.messages.setdefault(receiver, message)
                sender = first_text(attributes, ("sender_thread_id",))
                if attributes.get("kind") == "result" and sender is not None:
                    logged.ends[sender] = record.time
            elif record.name == _RESULT:
                name = first_text(attributes, ("agent_name",))
                if conversation is not None and name not in (None, _ROOT):
                    logged.names.setdefault(conversation, name or "")
                if "agent" in (first_text(attributes, ("tool_name",)) or ""):
                    outputs.append((record, parsed(attributes.get("output"))))
        for record, output in outputs:
            if isinstance(output, dict):
                logged.add_output(record, output)
        logged.children |= logged.openers.keys() | logged.names.keys() | logged.answers.keys()
        return logged

    def _latest(self, turn: _Turn) -> float:
        """Return when the last work of a turn ended; infinity while some of it is running."""
        return max((span.end or inf for span in self._of_turn.get(turn, ())), default=0)

    def _link_agents(self, turns: list[_Turn], logged: _LoggedFacts) -> None:
        """Link agents to the tool calls that started them.

        Log records are used if span ids do not link an agent. If no main agent is known, one agent
        without a tool call becomes the main agent. Each other agent without a tool call gets a
        missing parent, so that it is shown as unplaced.
        """
        ways = _ways_up([*self._spans, *self.made])
        mains = {
            first_text(span.attributes, _TURNS) for span in self._spans if span.name == "turn/start"
        }
        unlinked: list[_Turn] = []
        has_main = False
        for turn in turns:
            assert turn.span is not None
            parent = turn.span.parent
            way = ways[parent] if parent is not None else None
            if way is not None and (way.node is not None or way.top.missing_parent is None):
                has_main = has_main or way.node is None
                continue
            opener = self._opener(logged.openers.get(turn.conversation or ""))
            if opener is not None:
                _set_parent(turn.span, opener)
            else:
                unlinked.append(turn)
        if not has_main and unlinked:
            main = min(
                unlinked,
                key=lambda turn: (turn.turn_id not in mains, turn.conversation in logged.children),
            )
            unlinked.remove(main)
        for turn in unlinked:
            assert turn.span is not None
            if turn.span.parent is None and turn.span.missing_parent is None:
                turn.span.missing_parent = self._lasting_id("opener", turn.conversation)

    def _opener(self, span_id: bytes | None) -> SlimSpan | None:
        """Return the tool call that the log record with this span id describes; None if unknown."""
        span = self._by_id.get(span_id or b"")
        node = self._ways[span].node if span is not None else None
        if node is not None and node.facts.role is Role.TOOL:
            return node
        return self._call_spans.get(span_id or b"")


@dataclass(slots=True)
class _LoggedFacts:
    """Facts about agents from log records. Keys are conversation ids, unless stated otherwise."""

    requests: dict[_Turn, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    """The message that started a sub-agent, by conversation and by the id of the started turn."""
    names: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """When the agents of a conversation ended, if that is known."""
    openers: dict[str, bytes] = field(default_factory=dict)
    """The span id in the log record of the tool call that started the conversation's agent."""
    receivers: dict[bytes, str] = field(default_factory=dict)
    """The inverse of `openers`: the conversation that a tool call started, by span id."""
    children: set[str] = field(default_factory=set)
    """Conversations that began within the run. Their agents are probably not the main agent."""

    def add_output(self, record: LogRecord, output: Mapping[str, Any]) -> None:
        """Read the output of a tool that starts sub-agents or waits for them.

        Args:
            record: The log record with the tool's result.
            output: The parsed output.
        """
        span_id = record.span_id or b""
        opened = first_text(output, ("agent_id",))
        if opened is not None:
            self.openers.setdefault(opened, span_id)
        opened = opened or self.receivers.get(span_id)
        name = first_text(output, ("nickname", "task_name"))
        if opened is not None and name is not None:
            self.names.setdefault(opened, name)
        status = output.get("status")
        if isinstance(status, dict):
            for conversation, ended in status.items():
                answer = text(ended.get("completed")) if isinstance(ended, dict) else None
                if answer is not None:
                    self.answers[conversation] = answer
                    self.ends.setdefault(conversation, record.time)


# --- Attributes -----------------------------------------------------------------------------------

_SPAN_COUNTS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
)
_STREAM_COUNTS = (
    "input_token_count",
    "output_token_count",
    "cached_token_count",
    "cache_write_token_count",
)


def _ways_up(spans: Iterable[SlimSpan]) -> dict[SlimSpan, _Way]:
    """Return the result of following the parent links upwards, for each span."""
    ways: dict[SlimSpan, _Way] = {}
    for span in spans:
        way = []
        at: SlimSpan | None = span
        while at is not None and at not in ways and at.facts.role not in _NODES:
            way.append(at)
            at = at.parent
        end = _Way(None, way[-1]) if at is None else ways.setdefault(at, _Way(at, at))
        for each in way:
            ways[each] = end
    return ways


def _call_over(turn: _Turn, part: _DetachedPart) -> _ModelCall:
    """Return the model call of a turn that contains a part, by time. Create the call if needed."""
    calls = turn.model_calls
    at = bisect_right(calls, part.start, key=lambda call: call.start)
    before = calls[at - 1] if at else None
    if before is not None:
        own = before.span.end if before.span is not None else before.until
        times = [request.time for request in before.requests]
        if part.start <= max(own, *times, 0) or (before.span is not None and not own):
            return before
        if part.request is not None and before.span is None and not before.is_answered:
            return before  # a retry
    if at < len(calls) and calls[at].start < part.end:
        calls[at].start = part.start
        return calls[at]
    made = _ModelCall(part.start, None)
    calls.insert(at, made)
    return made


def _set_parent(span: SlimSpan, parent: SlimSpan) -> None:
    span.parent, span.parent_span_id, span.missing_parent = parent, parent.span_id, None


def _has_trace(record: LogRecord) -> bool:
    """Return whether a log record names a trace.

    A record that names none may belong to another turn of the conversation.
    """
    return any(record.trace_id)


def _conversation(record: LogRecord) -> str | None:
    return first_text(record.attributes, _CONVERSATIONS)


def _key(attributes: Attributes) -> _Key | None:
    call_id = attributes.get("call_id")
    if not isinstance(call_id, str):
        return None
    conversation = first_text(attributes, _CONVERSATIONS)
    return (conversation, call_id) if conversation is not None else None


def _content(attributes: Attributes, name: str) -> str | None:
    content = first_text(attributes, (name,))
    return content if content != _REDACTED else None


def _duration(attributes: Attributes) -> int:
    """Return the attribute `duration_ms` in nanoseconds; 0 if it is missing."""
    return (count(attributes.get("duration_ms")) or 0) * 1_000_000


def _request_of(span_id: bytes, time: int, attributes: Attributes) -> _HttpRequest:
    status = count(attributes.get("http.response.status_code"))
    error = first_text(attributes, ("error.message",))
    if error is None and status is not None and status >= 400:
        error = f"HTTP status {status}"
    return _HttpRequest(
        max(time - _duration(attributes), 0),
        time,
        span_id,
        first_text(attributes, _CONVERSATIONS),
        first_text(attributes, ("model",)),
        error,
    )


def _counts(attributes: Attributes, names: tuple[str, str, str, str]) -> _Counts | None:
    if names[0] not in attributes:
        return None
    return _Counts(*(count(attributes.get(name)) for name in names))


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def _add_result(call: SlimSpan, attributes: Attributes) -> None:
    """Add a tool call's arguments and result, which are in a log record, to the call's span."""
    facts, output = call.facts, _content(attributes, "output")
    code = _exit_code(output)
    name = first_text(attributes, ("tool_name",))
    call.facts = facts._replace(
        name=_bare_name(name) if name is not None else facts.name,
        tool_type="MCP" if first_text(attributes, ("mcp_server",)) else facts.tool_type,
        arguments=_content(attributes, "arguments"),
        result=output,
        has_failed=text(attributes.get("success")) == "false" or code != 0,
        failure=_message(output or "", code) if code else None,
    )


def _exit_code(output: str | None) -> int:
    """Return the exit code at the beginning of a command's output; 0 if the output has none.

    Earlier versions write it into the `metadata` of an object.
    Codex itself reports a command as successful whatever its exit code is.
    """
    match = _EXIT_CODE.match(output or "")
    if match is not None:
        return int(match[1] or match[2])
    fields = parsed(output)
    metadata = fields.get("metadata") if isinstance(fields, dict) else None
    code = metadata.get("exit_code") if isinstance(metadata, dict) else None
    return code if isinstance(code, int) else 0


def _message(output: str, code: int) -> str:
    """Return what a failed command printed, without Codex's lines about the command."""
    fields = parsed(output)
    printed = fields.get("output") if isinstance(fields, dict) else None
    if not isinstance(printed, str):
        printed = output.partition("\nOutput:\n")[2]
    return printed.strip() or f"The command exited with code {code}."


DIALECT = Dialect(
    "Codex",
    order=50,
    read=read,
    scopes=(SCOPE + "*",),
    complete=complete,
    sessions={"codex_otel": "conversation.id"},
    reads={
        "role": ("codex.tool.phase", "event.kind", "event.name", "kind"),
        "links": (
            *"submission.id attempt communication_id receiver_thread_id sender_thread_id".split(),
            *_TURNS,
        ),
        "times": ("duration_ms",),
        "status": ("success", "error.message", "http.response.status_code"),
        "cancelled": ("aborted",),
        "name": ("agent_name", "tool_name"),
        "conversation": _CONVERSATIONS,
        "request": ("prompt", "content"),
        "model": ("model",),
        "input_tokens": (_STREAM_COUNTS[0], _SPAN_COUNTS[0]),
        "output_tokens": (_STREAM_COUNTS[1], _SPAN_COUNTS[1]),
        "cache_read_tokens": (_STREAM_COUNTS[2], _SPAN_COUNTS[2]),
        "reasoning_tokens": (_STREAM_COUNTS[3], _SPAN_COUNTS[3]),
        "call_id": ("call_id",),
        "tool_type": ("mcp_server",),
        "arguments": ("arguments",),
        "result": ("output",),
    },
)
