"""Claude Code 2.1: its spans (`claude_code.*`) and the log events of the same session.

The span `claude_code.interaction` is the main agent: it contains the work for one prompt of the
user. The spans alone are incomplete, so this module also reads log events:

- A sub-agent has no span. Its work is the set of spans with the same `agent_id`. They are below the
  `.execution` span of the tool call that started the sub-agent.
- A span is exported when it ends. A running tool call is therefore visible only by its
  `.blocked_on_user` span and its `tool_decision` event.
- Arguments, answers and costs are in log events.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Any

import orjson

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    RequestedCall,
    Role,
    SlimSpan,
    SpanFacts,
    count,
    first,
    first_text,
    synthetic_span,
)
from tracer.otel.dialects.genai import ARGUMENTS, INPUT_TOKENS, OUTPUT_TOKENS, RESULTS
from tracer.records.arguments import parsed
from tracer.records.prices import usd
from tracer.records.spans import STATUS_ERROR, Attributes, LogRecord, ReadableSpan

SCOPE = "com.anthropic.claude_code"
"""The prefix of the names of Claude Code's instrumentation scopes."""

OPENED_BY_ORDER = "the only call that can have opened an agent when its work began"
CALLED_BY_ORDER = "the only agent that can have made the call when it began"

_PREFIX = "claude_code."
_INTERACTION, _REQUEST = "claude_code.interaction", "claude_code.llm_request"
_TOOL, _EXECUTION = "claude_code.tool", "claude_code.tool.execution"
_WAIT = "claude_code.tool.blocked_on_user"
_CONVERSATIONS = ("session.id", "session_id")
_CALL_IDS = ("tool_use_id", "gen_ai.tool.call.id")
_REDACTED = "<REDACTED>"
_CONTINUES = "SendMessage"
_OPENERS = frozenset((None, "Agent", "Task", "Skill", _CONTINUES))
"""Tools that can start or continue a sub-agent. None: the tool's name has not arrived, so that the
call may be of any tool."""

_MOST_PAIRS = 10_000
"""The maximum number of pairs of sub-agents and tool calls to compare. Above it, no link is
inferred."""
_MOST_WORK = 1_000_000
_MOST_AT_ONCE = 10
"""The maximum number of tool calls of one model answer that Claude Code runs in parallel. Further
calls wait, and may start late."""
_MOST_LEVELS = 100
_MOST_OF_TITLE = 300
_MILLISECOND = 1_000_000
_SETTLED = 50 * _MILLISECOND
"""The time in nanoseconds after the end of a model answer within which its tool calls start. A call
starts later only if it waits for another call."""
_BUILT_IN = "agent:builtin:"
_NOTIFICATION = "<task-notification>"


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Claude Code; None for any other span.

    A tool call has up to three spans. Only `claude_code.tool` counts as the call. Its children
    `.execution` and `.blocked_on_user` are wrappers.
    """
    if not span.name.startswith(_PREFIX):
        return None
    attributes = span.attributes
    conversation = first_text(attributes, _CONVERSATIONS)
    match span.name:
        case "claude_code.interaction":
            return _interaction(
                first_text(attributes, ("agent_name", "agent_id")),
                conversation,
                _text(first(attributes, ("user_prompt", "prompt"))),
            )
        case "claude_code.llm_request":
            return _model(attributes, conversation)
        case "claude_code.tool":
            return SpanFacts(
                Role.TOOL,
                name=first_text(attributes, ("tool_name", "gen_ai.tool.name")),
                conversation=conversation,
                call_id=first_text(attributes, _CALL_IDS),
                arguments=_arguments(attributes),
                result=_result(span),
            )
    return WRAPPER


def _interaction(name: str | None, conversation: str | None, prompt: str | None) -> SpanFacts:
    """Return the role and fields of the main agent that answers one prompt.

    If the prompt is a notification that a background agent has ended, the title is the
    notification's summary.
    """
    title, follows = prompt, None
    if prompt is not None and prompt.startswith(_NOTIFICATION):
        title = _tagged(prompt, "summary")
        follows = _tagged(prompt, "tool-use-id")
    if title is not None and len(title) > _MOST_OF_TITLE:
        title = title[: _MOST_OF_TITLE - 1] + "…"
    return SpanFacts(
        Role.AGENT,
        name=name or "claude_code",
        conversation=conversation,
        request=prompt,
        title=title,
        follows_call_id=follows,
    )


def _tagged(text: str, tag: str) -> str | None:
    match = re.search(f"<{tag}>([^<]{{1,1000}})</{tag}>", text[:10_000])
    return match[1] if match else None


def _model(attributes: Attributes, conversation: str | None) -> SpanFacts:
    """Return the role and fields of a model call.

    Anthropic's `input_tokens` exclude cached tokens, so these are added.
    """
    fresh = count(attributes.get("input_tokens"))
    cached = count(attributes.get("cache_read_tokens")) or 0
    written = count(attributes.get("cache_creation_tokens")) or 0
    whole = count(first(attributes, INPUT_TOKENS))
    requested = first_text(attributes, ("model", "gen_ai.request.model"))
    return SpanFacts(
        Role.MODEL,
        conversation=conversation,
        requested_model=requested,
        # A suffix such as `[1m]` is the program's own: it chooses the size of the context.
        model=re.sub(r"\[\w+\]$", "", requested) if requested else None,
        answer=_text(attributes.get("response.model_output")),
        cost_usd=usd(first(attributes, ("cost_usd",))),
        input_tokens=whole if fresh is None else fresh + cached + written,
        output_tokens=count(first(attributes, ("output_tokens", *OUTPUT_TOKENS))),
        cache_read_tokens=cached,
        cache_written_tokens=written,
    )


def _arguments(attributes: Attributes) -> str | None:
    """Return the arguments of a tool call, from the attributes of its span.

    If Claude Code is not configured to export them, only a command or a file path is available.
    """
    whole = first_text(attributes, ("tool_input", *ARGUMENTS))
    if whole is not None:
        return _without_heading(whole)
    if command := _text(attributes.get("full_command")):
        return _json({"command": command})
    if path := _text(attributes.get("file_path")):
        return _json({"file_path": path})
    return None


def _result(span: ReadableSpan) -> str | None:
    output = first_text(span.attributes, ("tool_output", *RESULTS))
    if output is not None:
        return output
    for event in span.events:
        if event.name == "tool.output":
            return _text(first(event.attributes, ("output", "content")))
    context = _text(span.attributes.get("new_context"))
    if context is None or not context.startswith("[TOOL RESULT"):
        return None
    output = _without_heading(context)
    value = parsed(output)
    content = value.get("content") if isinstance(value, dict) else None
    return (_block_text(content) if isinstance(content, list) else _text(content)) or output


def _block_text(blocks: list[Any]) -> str | None:
    texts = [
        block["text"] for block in blocks if isinstance(block, dict) and _text(block.get("text"))
    ]
    return "\n".join(texts) or None


def _without_heading(text: str) -> str | None:
    """Return a text without its first line if that is a heading such as `[TOOL INPUT: Bash]`."""
    if not text.startswith("[TOOL "):
        return _text(text)
    return text.partition("\n")[2] or None


def _text(value: Any) -> str | None:
    """Return `value` if it is a text with content; None if it is empty or `<REDACTED>`."""
    return value if isinstance(value, str) and value not in ("", _REDACTED) else None


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 16:
        return float(value)
    return value if isinstance(value, int | float) and 0 <= value < 1e15 else None


def _id(kind: str, *parts: bytes | str | None) -> bytes:
    """Return the id of a span that Tracer creates.

    The id depends only on the emitter's ids, so that it stays the same when more data arrives.
    """
    id_parts = [
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    ]
    return sha256(
        orjson.dumps([kind, *(part.hex() if part else None for part in id_parts)])
    ).digest()[:8]


# --- The parts of a run --------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _ClaudeCall:
    """One tool call, with its spans and log events that have arrived."""

    span_id: bytes
    """The id of the call's `tool` span; if this id is unknown, an id that Tracer created."""
    tool: SlimSpan | None = None
    execution: SlimSpan | None = None
    wait: SlimSpan | None = None
    decision: LogRecord | None = None
    result: LogRecord | None = None
    chosen: RequestedCall | None = None
    """The request for the call in the model's answer. It is known only if raw bodies are logged."""
    span: SlimSpan | None = None
    """The call's `tool` span, or the span that Tracer created because it has not arrived."""
    caller: bytes | None = None
    """The id of the span above the work of the agent that made the call. This span is an
    interaction or an `.execution` span."""
    inferred_caller: SlimSpan | None = None
    segments: list[_Segment] = field(default_factory=list)
    """The work of sub-agents that the call started or continued."""
    name: str | None = None
    session: str | None = None
    start: int = 0
    end: int = 0
    """When the call ended; 0 if that is unknown."""
    error: str | None = None
    """The error text; None if the call did not fail."""

    def settle(self) -> None:
        """Compute the name, session, start, end, error and caller of the call.

        Call this after all spans and log events of the call have been assigned.
        """
        self.name = self.says("tool_name", "gen_ai.tool.name")
        self.session = self.says(*_CONVERSATIONS)
        spans = [span for span in (self.tool, self.wait, self.execution) if span is not None]
        if spans:
            self.start = spans[0].start
        elif self.decision is not None:
            self.start = self.decision.time
        elif self.result is not None:
            self.start = _start_of(self.result)
        ends = [span.end for span in (self.tool, self.execution) if span is not None and span.end]
        if ends:
            self.end = ends[0]
        elif self.result is not None:
            self.end = self.result.time
        elif self.is_denied and self.wait is not None:
            self.end = self.wait.end
        self.error = self._error()
        if self.tool is not None:
            self.caller = self.tool.parent_span_id
        elif self.result is not None:
            self.caller = self.result.span_id

    def says(self, *names: str) -> str | None:
        """Return the first of the named attributes that has text.

        The spans and log events of the call are searched in a fixed order.
        """
        parts = (self.tool, self.execution, self.result, self.decision, self.wait)
        for part in parts:
            if part is not None and (value := _text(first(part.attributes, names))):
                return value
        return None

    def _error(self) -> str | None:
        execution = self.execution
        if execution is not None and (
            execution.status_code == STATUS_ERROR or execution.attributes.get("success") is False
        ):
            return self.says("error") or execution.status_message or self.says("error_type") or ""
        if self.result is not None and self.result.attributes.get("success") in ("false", False):
            return self.says("error", "error_type") or ""
        return None

    @property
    def agent_type(self) -> str | None:
        """The type of the sub-agent that the call starts, such as `Explore`; None if unknown."""
        if agent_type := self.says("subagent_type"):
            return agent_type
        for text in (self.says("tool_input"), self.says("tool_parameters"), self.requested):
            if agent_type := _text(_object(text).get("subagent_type")):
                return agent_type
        return None

    @property
    def requested(self) -> str | None:
        return self.chosen.arguments if self.chosen is not None else None

    @property
    def is_denied(self) -> bool:
        """Whether the user or a permission rule rejected the call.

        The decision is on the `.blocked_on_user` span and in the `tool_decision` event. Either may
        be missing.
        """
        decisions = (self.wait, self.decision)
        return any(each and each.attributes.get("decision") == "reject" for each in decisions)

    @property
    def may_have_opened(self) -> bool:
        """Whether the call may have started a sub-agent, although no ids connect them.

        That is the case if the tool can start sub-agents, the `.execution` span is missing, and the
        call was not rejected.
        """
        return self.name in _OPENERS and self.execution is None and not self.is_denied

    def arguments(self) -> str | None:
        """Return the most complete arguments that have arrived.

        They are complete in the event with the result and in the raw body of the model's answer.
        The attributes of spans may contain only a part of them.
        """
        whole = _text(self.result.attributes.get("tool_input")) if self.result else None
        if whole is not None or self.requested is not None:
            return whole or self.requested
        if self.tool is not None and self.tool.facts.arguments is not None:
            return self.tool.facts.arguments
        parameters = _object(self.says("tool_parameters"))
        command = parameters.pop("full_command", None)
        parameters.pop("bash_command", None)
        if not isinstance(command, str):
            return None
        return _json({"command": command, **parameters})


@dataclass(slots=True, eq=False)
class _Segment:
    """The part of a sub-agent's work that one tool call started.

    The first call starts the sub-agent. A later `SendMessage` call may continue it. All work of a
    segment is below the `.execution` span of its call.
    """

    below: bytes
    agent: _Agent
    start: int
    last: int
    """When the latest work of the segment began."""
    has_spans: bool = False
    """Whether spans of the segment have arrived. Log events do not contain the parent agent."""
    parent_agent: str | None = None
    call: _ClaudeCall | None = None
    is_inferred: bool = False
    is_background: bool = False
    """Whether the tool call returned before the work was done."""


@dataclass(slots=True, eq=False)
class _Agent:
    """A main agent (one interaction) or a sub-agent, with its work."""

    span: SlimSpan
    segments: list[_Segment] = field(default_factory=list)
    requests: list[SlimSpan] = field(default_factory=list)
    calls: list[_ClaudeCall] = field(default_factory=list)

    @property
    def is_background(self) -> bool:
        return bool(self.segments) and self.segments[-1].is_background

    @property
    def end(self) -> float:
        return self.span.end or inf


@dataclass(slots=True)
class _Events:
    """The log events of a run, grouped by kind."""

    prompts: list[LogRecord] = field(default_factory=list)
    decisions: list[LogRecord] = field(default_factory=list)
    results: list[LogRecord] = field(default_factory=list)
    requests: list[LogRecord] = field(default_factory=list)
    errors: list[LogRecord] = field(default_factory=list)
    answers: list[LogRecord] = field(default_factory=list)
    completions: list[LogRecord] = field(default_factory=list)
    bodies: list[LogRecord] = field(default_factory=list)


_LISTS = {
    "user_prompt": "prompts",
    "tool_decision": "decisions",
    "tool_result": "results",
    "api_request": "requests",
    "api_error": "errors",
    "assistant_response": "answers",
    "subagent_completed": "completions",
    "api_response_body": "bodies",
}


def _is_own(span: SlimSpan) -> bool:
    return span.name.startswith(_PREFIX)


def _is_event(record: LogRecord, name: str) -> bool:
    return record.name.removeprefix(_PREFIX) == name


def _sequence(record: LogRecord) -> int | None:
    value = record.attributes.get("event.sequence")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _start_of(record: LogRecord) -> int:
    """Return when the work that a log event describes began, in nanoseconds since 1970.

    The event itself is written when the work ends.
    """
    lasted = _number(record.attributes.get("duration_ms")) or 0
    return max(record.time - int(lasted) * _MILLISECOND, 0)


def _json(value: Any) -> str | None:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError):
        return None


def _object(text: Any) -> dict[str, Any]:
    value = parsed(text)
    return dict(value) if isinstance(value, dict) else {}


def complete(spans: list[SlimSpan], logs: list[LogRecord]) -> list[SlimSpan]:
    """Create spans for sub-agents and running tool calls, and add content from log events.

    Implements `Dialect.complete`.
    """
    return _Completion(spans, logs).result()


class _Completion:
    """Completes the spans of one run. See `complete`."""

    def __init__(self, spans: list[SlimSpan], logs: list[LogRecord]) -> None:
        self._spans = spans
        self._by_id = {span.span_id: span for span in spans}
        self._logs = sorted(
            (record for record in logs if record.scope.startswith(SCOPE)),
            key=lambda each: (each.time, _sequence(each) or 0, each.sent),
        )
        self._events = _Events()
        for record in self._logs:
            kind = _LISTS.get(record.name.removeprefix(_PREFIX))
            if kind is not None:
                getattr(self._events, kind).append(record)
        self._made: dict[bytes, SlimSpan] = {}
        self._calls: dict[bytes, _ClaudeCall] = {}
        self._mains: dict[bytes, _Agent] = {}
        self._agents: dict[bytes, _Agent] = {}
        self._segments: dict[tuple[bytes, bytes], _Segment] = {}
        self._below: dict[bytes, _Agent] = {}
        """The agent that works directly below a span, by span id. The span is an interaction or an
        `.execution` span."""

    def result(self) -> list[SlimSpan]:
        """Return all spans of the run, sorted by start and id."""
        self._read_bodies()
        self._find_calls()
        self._find_interactions()
        self._complete_requests()
        self._find_agents()
        self._make_calls()
        self._open_agents()
        self._infer_openers()
        self._place_agents()
        self._end_agents()
        self._place_calls()
        self._infer_callers()
        self._link_waiting()
        self._complete_calls()
        self._mark_interrupted()
        self._complete_agents()
        self._cut_circles()
        return sorted([*self._spans, *self._made.values()], key=lambda span: span.order)

    def _make(self, span_id: bytes, name: str, start: int, end: int, facts: SpanFacts) -> SlimSpan:
        made = synthetic_span(span_id, name, SCOPE, (start, end), facts)
        self._made[span_id] = made
        return made

    # --- Calls -----------------------------------------------------------------------------------

    def _read_bodies(self) -> None:
        """Find the tool calls that each model answer requested, in the raw body of the answer."""
        self._chosen: dict[tuple[str | None, bytes | None], tuple[RequestedCall, ...]] = {}
        self._requested: dict[str, list[tuple[RequestedCall, bytes | None]]] = {}
        for record in self._events.bodies:
            content = _object(record.attributes.get("body")).get("content")
            chosen = tuple(
                RequestedCall(
                    _text(block.get("id")),
                    _text(block.get("name")),
                    _json(block.get("input")),
                )
                for block in (content if isinstance(content, list) else ())
                if isinstance(block, dict) and block.get("type") == "tool_use"
            )
            self._chosen[_text(record.attributes.get("request_id")), record.span_id] = chosen
            for each in chosen:
                if each.call_id:
                    self._requested.setdefault(each.call_id, []).append((each, record.span_id))

    def _call(self, span_id: bytes | None) -> _ClaudeCall | None:
        """Return the tool call whose `claude_code.tool` span has this id. Create it if necessary.

        Returns None if a span of another kind has this id.
        """
        if span_id is None:
            return None
        span = self._by_id.get(span_id)
        if span is not None and span.name != _TOOL:
            return None
        return self._calls.setdefault(span_id, _ClaudeCall(span_id))

    def _find_calls(self) -> None:
        waits: dict[bytes, _ClaudeCall] = {}
        for span in self._spans:
            if span.name == _TOOL:
                if call := self._call(span.span_id):
                    call.tool = span
            elif span.name == _EXECUTION:
                if (call := self._call(span.parent_span_id)) and call.execution is None:
                    call.execution = span
            elif span.name == _WAIT and (call := self._call(span.parent_span_id)):
                call.wait = call.wait or span
                waits[span.span_id] = call
        self._join_decisions(waits)
        self._join_results()
        for call in self._calls.values():
            requested = self._requested.get(call.says(*_CALL_IDS) or "", [])
            call.settle()
            if call.caller is not None:
                requested = [each for each in requested if each[1] == call.caller]
            if len(requested) == 1:
                call.chosen = requested[0][0]
                call.caller = call.caller or requested[0][1]

    def _join_decisions(self, waits: dict[bytes, _ClaudeCall]) -> None:
        left: list[LogRecord] = []
        for record in self._events.decisions:
            waiting = waits.get(record.span_id or b"")
            if waiting is None:
                left.append(record)
            elif waiting.decision is None:
                waiting.decision = record
        without: dict[str, list[_ClaudeCall]] = {}
        for call in self._calls.values():
            call_id = call.says(*_CALL_IDS)
            if call.decision is None and call.wait is None and call_id:
                call.settle()
                without.setdefault(call_id, []).append(call)
        pairing = _Pairing(without)
        for record in left:
            call_id = _text(first(record.attributes, _CALL_IDS))
            if call_id is None:
                continue
            matched = pairing.take(call_id, record, record.time, None)
            if matched is None:
                span_id = _id("decision", call_id, record.span_id)
                matched = self._calls.setdefault(span_id, _ClaudeCall(span_id))
            if matched.decision is None:
                matched.decision = record

    def _join_results(self) -> None:
        """Assign each `tool_result` event to its tool call.

        They are matched by the provider's call id. Because such an id may repeat, `_Pairing` also
        compares times. If a result matches no call, a call is created.
        """
        known: dict[str, list[_ClaudeCall]] = {}
        for call in self._calls.values():
            call_id = call.says(*_CALL_IDS)
            if call_id:
                call.settle()
                known.setdefault(call_id, []).append(call)
        pairing = _Pairing(known)
        for record in sorted(self._events.results, key=_start_of):
            call_id = _text(first(record.attributes, _CALL_IDS))
            if call_id is None:
                continue
            matched = pairing.take(
                call_id, record, _start_of(record) + _MILLISECOND, record.span_id
            )
            if matched is None:
                sequence = str(_sequence(record))
                span_id = _id("result", call_id, record.span_id, sequence)
                matched = self._calls.setdefault(span_id, _ClaudeCall(span_id))
            matched.result = record

    # --- The main agent --------------------------------------------------------------------------

    def _find_interactions(self) -> None:
        """Find the main agents. Create the `interaction` spans that have not arrived."""
        starts: dict[bytes, int] = {}
        sessions: dict[bytes, str | None] = {}
        prompts: dict[bytes, LogRecord] = {}
        for record in self._events.prompts:
            if record.span_id is not None:
                prompts.setdefault(record.span_id, record)
                starts.setdefault(record.span_id, record.time)
                sessions.setdefault(record.span_id, first_text(record.attributes, _CONVERSATIONS))
        for span in self._spans:
            parent = span.parent_span_id
            if span.name == _INTERACTION:
                starts[span.span_id] = span.start
                self._mains.setdefault(span.span_id, _Agent(span))
            elif parent is not None and parent not in self._by_id and _is_of_main(span):
                starts[parent] = min(span.start, starts.get(parent, span.start))
                sessions.setdefault(parent, span.facts.conversation)
        earliest = self._earliest
        if not starts and earliest is not None:
            # The work of a sub-agent may come first. It is not that of the main agent.
            span_id = _id("interaction", earliest[1])
            starts[span_id], sessions[span_id] = earliest
        if len(starts) == 1 and earliest is not None:
            # No call opened it, so it began before everything that has arrived.
            starts = dict.fromkeys(starts, max(earliest[0] - 1, 0))
        for span_id, start in starts.items():
            if span_id in self._by_id or span_id in self._calls:
                continue
            facts = _interaction(None, sessions.get(span_id), None)
            self._mains[span_id] = _Agent(self._make(span_id, _INTERACTION, start, 0, facts))
        for span_id, agent in self._mains.items():
            self._below[span_id] = agent
            prompt = prompts.get(span_id)
            facts = agent.span.facts
            if prompt is not None and facts.request is None:
                prompt_text = _text(prompt.attributes.get("prompt"))
                agent.span.facts = _interaction(facts.name, facts.conversation, prompt_text)

    @property
    def _earliest(self) -> tuple[int, str | None] | None:
        """The start and the session of the run's earliest span or log event; None without any."""
        candidates = [
            *((span.start, span.facts.conversation) for span in self._spans if _is_own(span)),
            *((record.time, _session_of(record)) for record in self._logs),
        ]
        return min(candidates, key=lambda each: (each[0], each[1] or ""), default=None)

    # --- Rounds ----------------------------------------------------------------------------------

    def _complete_requests(self) -> None:
        """Add costs, answers and errors from log events to model calls.

        A model call that only log events describe gets a span.
        """
        answers = {_request_key(each): each for each in self._events.answers}
        logged: dict[Any, list[LogRecord]] = {}
        for record in self._events.requests:
            logged.setdefault(_request_key(record), []).append(record)
        for span in self._spans:
            if span.name != _REQUEST:
                continue
            key = _request_key(span)
            requests = logged.get(key)
            logged_one = requests.pop(0) if requests else None
            self._complete_request(span, key, logged_one, answers.get(key))
        if not any(span.name == _REQUEST for span in self._spans):
            # An error does not always name the request of its span: it may be one of several tries.
            for record in self._events.errors:
                logged.setdefault(_request_key(record), []).append(record)
        for key, records in logged.items():
            for record in records:
                start = _start_of(record)
                facts = _model(record.attributes, _session_of(record))
                span_id = _id("request", *map(str, key), str(_sequence(record)))
                if span_id not in self._by_id:
                    made = self._make(span_id, _REQUEST, start, record.time, facts)
                    made.parent_span_id = record.span_id
                    made.parent = self._by_id.get(record.span_id or b"")
                    made.missing_parent = record.span_id if made.parent is None else None
                    made.attributes = record.attributes
                    self._complete_request(made, key, record, answers.get(key))

    def _complete_request(
        self, span: SlimSpan, key: Any, record: LogRecord | None, answer: LogRecord | None
    ) -> None:
        facts = span.facts
        if record is not None:
            cost = usd(record.attributes.get("cost_usd"))
            facts = facts._replace(cost_usd=facts.cost_usd if cost is None else cost)
        if answer is not None:
            answer_text = _text(answer.attributes.get("response"))
            facts = facts._replace(answer=answer_text or facts.answer)
        chosen = self._chosen.get(key) if len(key) == 2 else None
        if chosen:
            facts = facts._replace(chosen=chosen)
        span.facts = facts
        has_failed = record is not None and _is_event(record, "api_error")
        if has_failed or span.attributes.get("success") is False:
            span.status_code = STATUS_ERROR
            span.status_message = _text(span.attributes.get("error")) or span.status_message

    # --- Sub-agents ------------------------------------------------------------------------------

    def _find_agents(self) -> None:
        """Find the sub-agents. Divide the work of each sub-agent into segments (`_Segment`)."""
        for span in self._spans:
            agent_id = _agent_id(span)
            below = span.parent_span_id
            if agent_id is None or below is None or below in self._mains:
                continue
            if self._is_within_own_call(span, agent_id):
                continue
            segment = self._segment(
                below, _id("agent", agent_id), agent_id, span.start, span.facts.conversation
            )
            segment.has_spans = True
            segment.parent_agent = segment.parent_agent or _text(
                span.attributes.get("parent_agent_id")
            )
            if span.name == _REQUEST:
                segment.agent.requests.append(span)
            span.parent, span.missing_parent = segment.agent.span, None
        for made in list(self._made.values()):
            below = made.parent_span_id
            if made.name == _REQUEST and below is not None:
                known = self._below.get(below)
                if known is None and _is_of_agent(made):
                    known = self._unnamed(below, made.start, made.facts.conversation)
                if known is not None:
                    known.requests.append(made)
                    made.parent, made.missing_parent = known.span, None
        for record in self._events.results:
            below = record.span_id
            if below is not None and below not in self._below:
                execution = self._by_id.get(below)
                if execution is None or execution.name == _EXECUTION:
                    self._unnamed(below, _start_of(record), _session_of(record))
        for span in self._spans:
            if span.name == _REQUEST and span.parent_span_id in self._mains:
                self._mains[span.parent_span_id].requests.append(span)

    def _unnamed(self, below: bytes, start: int, conversation: str | None) -> _Agent:
        """Return the sub-agent for work of which only log events have arrived.

        Such events name no agent. They contain the id of the `.execution` span that the work is
        below.
        """
        return self._segment(below, _id("execution", below), None, start, conversation).agent

    def _segment(
        self,
        below: bytes,
        span_id: bytes,
        agent_id: str | None,
        start: int,
        conversation: str | None,
    ) -> _Segment:
        agent = self._agents.get(span_id)
        if agent is None:
            facts = SpanFacts(Role.AGENT, name=agent_id, conversation=conversation)
            made = self._make(span_id, "claude_code.agent", start, 0, facts)
            agent = self._agents[span_id] = _Agent(made)
        agent.span.start = min(agent.span.start, start)
        segment = self._segments.get((span_id, below))
        if segment is None:
            segment = _Segment(below, agent, start, start)
            self._segments[span_id, below] = segment
            agent.segments.append(segment)
            self._below.setdefault(below, agent)
        segment.start = min(segment.start, start)
        segment.last = max(segment.last, start)
        return segment

    def _is_within_own_call(self, span: SlimSpan, agent_id: str) -> bool:
        """Return whether a span is below a tool call that the agent of this span made itself.

        Such a call did not start the agent.
        """
        call = self._call_above(span.parent_span_id)
        return call is not None and call.tool is not None and _agent_id(call.tool) == agent_id

    def _call_above(self, span_id: bytes | None) -> _ClaudeCall | None:
        """Return the nearest tool call at or above a span; None if no such call is known."""
        for _ in range(_MOST_LEVELS):
            if span_id is None:
                return None
            if span_id in self._calls:
                return self._calls[span_id]
            span = self._by_id.get(span_id)
            if span is None or span.name == _INTERACTION:
                return None
            span_id = span.parent_span_id
        return None

    def _open_agents(self) -> None:
        """Link each segment of a sub-agent to the tool call above it, if span ids identify it."""
        for segment in self._segments.values():
            segment.call = self._call_above(segment.below)
            if segment.call is not None:
                segment.call.segments.append(segment)

    @cached_property
    def _types(self) -> dict[bytes, str]:
        """For each span id, the type of the agent that works directly below this span.

        The types come from log events.
        """
        agent_types: dict[bytes, str] = {}
        for record in (*self._events.requests, *self._events.completions):
            agent_name = _text(first(record.attributes, ("agent.name", "agent_type")))
            if record.span_id is not None and agent_name is not None:
                agent_types.setdefault(record.span_id, agent_name)
        return agent_types

    @cached_property
    def _built_in(self) -> dict[bytes, str]:
        """For each span id, the type of the built-in agent that works directly below this span.

        Only types of built-in agents are complete in log events. Names of other types may be
        shortened.
        """
        agent_names: dict[bytes, str] = {}
        for record in self._events.requests:
            source = _text(record.attributes.get("query_source")) or ""
            if record.span_id is not None and source.startswith(_BUILT_IN):
                agent_names.setdefault(record.span_id, source.removeprefix(_BUILT_IN))
        return agent_names

    # --- Inference -------------------------------------------------------------------------------

    @cached_property
    def _horizons(self) -> dict[str | None, int]:
        """For each session, the time until which no log event is missing.

        Claude Code numbers the events of a session without gaps. After a gap, an event of a tool
        call may be missing.
        """
        first_of: dict[str | None, list[tuple[int, LogRecord]]] = {}
        for record in self._logs:
            number = _sequence(record)
            if number is not None:
                first_of.setdefault(_session_of(record), []).append((number, record))
        horizons: dict[str | None, int] = {}
        for session, numbered in first_of.items():
            numbered.sort(key=lambda each: (each[0], each[1].sent))
            if not _is_event(numbered[0][1], "user_prompt"):
                continue
            expected = numbered[0][0]
            for number, record in numbered:
                if number != expected:
                    break
                expected += 1
                horizons[session] = max(horizons.get(session, 0), record.time)
        return horizons

    def _infer_openers(self) -> None:
        """Infer which tool calls started sub-agents, if the `.execution` spans are missing.

        A call can have started a sub-agent only if it began before the sub-agent's first work. A
        link is inferred only if every other such call must have started another sub-agent.
        """
        lost = sorted(
            (
                segment
                for segment in self._segments.values()
                if segment.call is None
                and segment.below not in self._by_id
                and segment.start <= self._horizons.get(segment.agent.span.facts.conversation, -1)
            ),
            key=lambda each: (each.start, each.below),
        )
        if not lost:
            return
        calls = sorted(
            (call for call in self._calls.values() if call.may_have_opened and not call.segments),
            key=lambda each: (each.start, each.span_id),
        )
        if not calls or len(lost) * len(calls) > _MOST_PAIRS:
            return
        pools = {
            segment: {call for call in calls if self._may_have_opened(call, segment)}
            for segment in lost
        }
        changed = True
        while changed:
            changed = False
            groups: dict[frozenset[_ClaudeCall], list[_Segment]] = {}
            for segment, pool in pools.items():
                groups.setdefault(frozenset(pool), []).append(segment)
            for group, segments in groups.items():
                if not group or len(group) != len(segments):
                    continue
                # These calls opened these agents, in whatever way: they opened no others.
                for segment, pool in pools.items():
                    if segment not in segments and pool & group:
                        pool -= group
                        changed = True
                if changed:
                    break
        for segment, pool in pools.items():
            if len(pool) == 1:
                (call,) = pool
                # Log events do not name the agent that was continued.
                is_known = segment.has_spans or call.name != _CONTINUES
                if is_known and not call.segments:
                    segment.call, segment.is_inferred = call, True
                    call.segments.append(segment)

    def _may_have_opened(self, call: _ClaudeCall, segment: _Segment) -> bool:
        if call.start > segment.start or call.session != segment.agent.span.facts.conversation:
            return False
        if call.error is not None and call.end < segment.start:
            return False
        kind, opened = self._built_in.get(segment.below), call.agent_type
        if kind is not None and opened is not None and kind != opened:
            return False
        caller = self._below.get(call.caller) if call.caller is not None else None
        if caller is None or len(segment.agent.segments) > 1 or not segment.has_spans:
            return True
        if segment.parent_agent is None:
            return call.caller in self._mains
        return caller is self._agents.get(_id("agent", segment.parent_agent))

    def _infer_callers(self) -> None:
        """Infer which agents made the running tool calls, from the order of events."""
        open_calls = sorted(
            (
                call
                for call in self._calls.values()
                if call.tool is None and call.caller is None and call.wait is not None
            ),
            key=lambda each: (each.start, each.span_id),
        )
        units = [*self._mains.values(), *self._agents.values()]
        work = sum(len(unit.calls) + len(unit.requests) for unit in units)
        if len(open_calls) * work > _MOST_WORK:
            return
        for unit in units:
            unit.requests.sort(key=lambda span: span.order)
        hidden = [
            call
            for call in self._calls.values()
            if call.name in _OPENERS and not call.segments and not call.is_denied
        ]
        if len(open_calls) * len(hidden) > _MOST_WORK:
            return
        for call in open_calls:
            caller = self._opened_by_whom(call) or self._only_caller(call, units, hidden)
            if caller is not None and call.span is not None:
                caller.calls.append(call)
                call.inferred_caller = caller.span
                call.span.parent, call.span.inferred = caller.span, CALLED_BY_ORDER

    def _opened_by_whom(self, call: _ClaudeCall) -> _Agent | None:
        """Return the agent that made a call, according to the sub-agent that the call started.

        The spans of the sub-agent name their parent agent. Returns None if no such span has
        arrived.
        """
        for segment in call.segments:
            if segment is not segment.agent.segments[0] or not segment.has_spans:
                continue
            if segment.parent_agent is not None:
                return self._agents.get(_id("agent", segment.parent_agent))
            if len(self._mains) == 1:
                return next(iter(self._mains.values()))
        return None

    def _only_caller(
        self, call: _ClaudeCall, units: list[_Agent], hidden: list[_ClaudeCall]
    ) -> _Agent | None:
        """Return the agent that made a running tool call; None if several may have made it."""
        horizon = self._horizons.get(call.session, -1)
        at = call.start
        if at > horizon or call.end:
            return None
        for other in hidden:
            # It may have opened an agent of which nothing has arrived.
            is_over = other.error is not None or (other.name == "Skill" and other.end)
            if other is not call and other.start <= at and not (is_over and other.end <= at):
                return None
        possible = [unit for unit in units if self._may_have_called(unit, at, horizon)]
        if len(possible) != 1:
            return None
        unit = possible[0]
        return unit if unit.span.facts.conversation == call.session else None

    def _may_have_called(self, unit: _Agent, at: int, horizon: int) -> bool:
        """Return whether an agent may have made a tool call that began at `at` and still runs."""
        if unit.span.start > at or unit.end <= at:
            return False
        latest = bisect_right(unit.requests, at, key=lambda span: span.start) - 1
        if latest < 0:
            return True
        if latest + 1 < len(unit.requests) and unit.requests[latest + 1].start <= horizon:
            return False  # its next request needed the results of all its calls
        request = unit.requests[latest]
        if not request.end or request.end >= at:
            waited = _number(request.attributes.get("ttft_ms")) or 0
            return at >= request.start + int(waited) * _MILLISECOND
        if _is_last(request):
            return False
        if request.end + _SETTLED >= at:
            return True
        later = [call for call in unit.calls if request.start <= call.start < at]
        is_waiting = any(not call.end or call.end > at for call in later)
        return not is_waiting or len(later) >= _MOST_AT_ONCE

    # --- Places ----------------------------------------------------------------------------------

    def _place_agents(self) -> None:
        """Make each sub-agent a child of the tool call that started it.

        Mark later calls that continued the same sub-agent.
        """
        for agent in self._agents.values():
            agent.segments.sort(key=lambda each: (each.start, each.below))
            earliest = agent.segments[0]
            opener = earliest.call
            span = agent.span
            if opener is not None:
                execution = opener.execution
                span.parent = execution if execution is not None else opener.span
                if earliest.is_inferred:
                    span.inferred = OPENED_BY_ORDER
            elif earliest.below in self._by_id:
                span.parent = self._by_id[earliest.below]
            else:
                span.missing_parent = earliest.below
            span.parent_span_id = earliest.below
            for segment in agent.segments:
                self._name(agent, segment)
                call = segment.call
                if call is not None and call is not opener and call.span is not None:
                    call.span.facts = call.span.facts._replace(continues=span.span_id)

    def _name(self, agent: _Agent, segment: _Segment) -> None:
        kind = segment.call.agent_type if segment.call is not None else None
        kind = kind or self._types.get(segment.below)
        if kind is not None and segment is agent.segments[0]:
            agent.span.facts = agent.span.facts._replace(name=kind)

    def _make_calls(self) -> None:
        """Create a span for each tool call whose own span has not arrived."""
        for call in self._calls.values():
            call.span = call.tool
            if call.span is None and call.span_id not in self._made:
                facts = SpanFacts(
                    Role.TOOL,
                    name=call.name,
                    conversation=call.session,
                    call_id=call.says(*_CALL_IDS),
                )
                call.span = self._make(call.span_id, _TOOL, call.start, call.end, facts)

    def _place_calls(self) -> None:
        """Make each tool call a child of the agent that made it, if ids identify this agent."""
        for call in self._calls.values():
            span, caller = call.span, call.caller
            if span is None:
                continue
            agent = self._below.get(caller) if caller is not None else None
            if call.tool is not None and _agent_id(call.tool) is not None:
                agent = self._agents.get(_id("agent", _agent_id(call.tool)))
            elif agent is not None:
                if span.parent is None:
                    span.parent, span.missing_parent = agent.span, None
            elif call.tool is None and caller is not None:
                span.parent_span_id, span.parent = caller, self._by_id.get(caller)
                span.missing_parent = None if caller in self._by_id else caller
            if agent is not None:
                agent.calls.append(call)

    # --- Content and endings ---------------------------------------------------------------------

    def _complete_calls(self) -> None:
        answers = self._last_answers
        for call in self._calls.values():
            span = call.span
            if span is None:
                continue
            facts = span.facts._replace(arguments=call.arguments(), is_denied=call.is_denied)
            if call.error is not None:
                span.status_code, span.status_message = STATUS_ERROR, call.error
            elif facts.result is None and call.end and call.segments:
                segment = call.segments[-1]
                if not segment.is_background:
                    facts = facts._replace(result=answers.get(segment.below))
            span.facts = facts

    @cached_property
    def _last_answers(self) -> dict[bytes, str]:
        """The last answer of the model below each span, by span id.

        A span is omitted if its last model call failed.
        """
        return {
            record.span_id: answer_text
            for record in self._events.answers
            if record.span_id is not None
            and record.span_id not in self._failed
            and (answer_text := _text(record.attributes.get("response")))
        }

    @cached_property
    def _failed(self) -> dict[bytes, SlimSpan]:
        """For each span id, the last model call below this span, if that call failed.

        A failed last model call ends the agent's work with an error.
        """
        latest: dict[bytes, SlimSpan] = {}
        for span in (*self._spans, *self._made.values()):
            below = span.parent_span_id
            if span.name == _REQUEST and below is not None:
                known = latest.get(below)
                if known is None or span.order > known.order:
                    latest[below] = span
        return {below: span for below, span in latest.items() if span.status_code == STATUS_ERROR}

    def _end_agents(self) -> None:
        """Set when each sub-agent ended, and whether it worked in the background.

        A sub-agent works in the background if its tool call returns before the work is done.
        """
        completed: dict[bytes, LogRecord] = {}
        for record in self._events.completions:
            if record.span_id is not None:
                completed[record.span_id] = record
        for agent in self._agents.values():
            for segment in agent.segments:
                call, done = segment.call, completed.get(segment.below)
                segment.is_background = (
                    call is not None
                    and bool(call.end)
                    and (
                        segment.last >= call.end
                        or (done is not None and done.attributes.get("is_async") is True)
                        or _object(call.arguments()).get("run_in_background") is True
                    )
                )
            last = agent.segments[-1]
            call, done = last.call, completed.get(last.below)
            latest = max(agent.requests, key=lambda span: span.order, default=None)
            if call is not None and call.end and not last.is_background:
                agent.span.end = call.end
            elif done is not None and done.time >= last.last:
                agent.span.end = done.time
            elif latest is not None and _is_last(latest) and latest.start >= last.last:
                agent.span.end = latest.end

    def _complete_agents(self) -> None:
        answers = self._last_answers
        for span_id, agent in self._mains.items():
            facts = agent.span.facts
            if agent.span.end and not facts.is_interrupted:
                agent.span.facts = facts._replace(answer=answers.get(span_id))
                self._fail_with_request(agent.span, span_id)
        for agent in self._agents.values():
            opener, last = agent.segments[0].call, agent.segments[-1]
            facts, span = agent.span.facts, agent.span
            if opener is not None:
                prompt = _text(_object(opener.arguments()).get("prompt"))
                facts = facts._replace(request=prompt)
            if span.end and not facts.is_interrupted:
                facts = facts._replace(answer=answers.get(last.below))
                self._fail_with_request(span, last.below)
            if last.call is not None and last.call.error is not None and not agent.is_background:
                span.status_code, span.status_message = STATUS_ERROR, last.call.error
            span.facts = facts

    def _fail_with_request(self, span: SlimSpan, below: bytes) -> None:
        request = self._failed.get(below)
        if request is not None:
            span.status_code, span.status_message = STATUS_ERROR, request.status_message

    def _mark_interrupted(self) -> None:
        """Mark work as interrupted if it was still running when the interaction ended.

        This happens if the process received SIGTERM. Background agents are excluded, because they
        may continue after the interaction.
        """
        if len(self._mains) != 1:
            return
        (main,) = self._mains.values()
        end = main.span.end
        if not end:
            return
        background = {agent.span for agent in self._agents.values() if agent.is_background}
        is_interrupted = False
        for agent in self._agents.values():
            if not agent.span.end and not self._is_within(agent.span, background):
                _interrupt(agent.span, max(end, agent.segments[-1].last))
                is_interrupted = True
        for call in self._calls.values():
            span = call.span
            if span is None or call.end or span.end:
                continue
            is_placed = span.parent is not None
            is_in_background = self._is_within(span, background) if is_placed else background
            if not is_in_background and call.start <= end:
                _interrupt(span, end)
                is_interrupted = True
        latest = max(main.requests, key=lambda span: span.order, default=None)
        if is_interrupted and not (latest is not None and _is_last(latest)):
            main.span.facts = main.span.facts._replace(is_interrupted=True)

    @staticmethod
    def _is_within(span: SlimSpan, agents: set[SlimSpan]) -> bool:
        at: SlimSpan | None = span
        for _ in range(_MOST_LEVELS):
            if at is None or not agents:
                return False
            if at in agents:
                return True
            at = at.parent
        return False

    # --- Links -----------------------------------------------------------------------------------

    def _link_waiting(self) -> None:
        """Link spans to their parents if Tracer created those parents."""
        for span in (*self._spans, *self._made.values()):
            if span.missing_parent is not None:
                parent = self._made.get(span.missing_parent)
                if parent is not None and parent is not span:
                    span.parent, span.missing_parent = parent, None

    def _cut_circles(self) -> None:
        """Break each cycle of parents by removing one parent link.

        The link is removed from a span that Tracer created, if the cycle has one. Among several,
        the span with the least id is chosen.
        """
        done: set[SlimSpan] = set()
        for start in self._made.values():
            way: dict[SlimSpan, None] = {}
            at: SlimSpan | None = start
            while at is not None and at not in done and at not in way:
                way[at] = None
                at = at.parent
            if at is not None and at in way:
                climbed = list(way)
                circle = climbed[climbed.index(at) :]
                made = [span for span in circle if span.span_id in self._made]
                cut = min(made or circle, key=lambda span: span.span_id)
                cut.parent, cut.inferred = None, None
            done.update(way)


class _Pairing:
    """Pairs log events with tool calls that have the same provider call id, by time."""

    def __init__(self, calls: dict[str, list[_ClaudeCall]]) -> None:
        self._calls = {
            call_id: sorted(executions, key=lambda each: (each.start, each.span_id))
            for call_id, executions in calls.items()
        }

    def take(
        self, call_id: str, record: LogRecord, time: int, caller: bytes | None
    ) -> _ClaudeCall | None:
        """Return the best matching tool call for a log event, and remove it from later searches.

        The latest call that began by `time` is preferred. Returns None if no call matches.

        Args:
            call_id: The provider call id.
            record: The log event, which names the tool.
            time: A time at which the call had begun, in nanoseconds since 1970.
            caller: The id of the span that the caller's work is below; None if it is unknown.
        """
        calls = self._calls.get(call_id, [])
        name = _text(record.attributes.get("tool_name"))
        fits = [
            each
            for each in calls[: 2 * _MOST_LEVELS]
            if (caller is None or each.caller is None or each.caller == caller)
            and (name is None or each.name is None or each.name == name)
        ]
        if not fits:
            return None
        chosen = max(
            fits,
            key=lambda each: (
                each.start <= time,
                caller is not None and each.caller == caller,
                each.start if each.start <= time else -each.start,
                each.span_id,
            ),
        )
        calls.remove(chosen)
        return chosen


def _interrupt(span: SlimSpan, end: int) -> None:
    span.end = end
    span.facts = span.facts._replace(is_interrupted=True)


def _session_of(record: LogRecord) -> str | None:
    return first_text(record.attributes, _CONVERSATIONS)


def _request_key(part: SlimSpan | LogRecord) -> tuple[Any, ...]:
    """Return a key that a model call and its log events share."""
    below = part.span_id if isinstance(part, LogRecord) else part.parent_span_id
    request_id = _text(part.attributes.get("request_id"))
    if request_id is not None:
        return request_id, below
    tokens = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
    return (None, below, *(count(part.attributes.get(name)) for name in tokens))


def _agent_id(span: SlimSpan) -> str | None:
    if span.name not in (_REQUEST, _TOOL):
        return None
    return _text(span.attributes.get("agent_id"))


def _is_of_agent(logged: SlimSpan) -> bool:
    """Return whether a sub-agent made a model call that only log events describe."""
    return (_text(logged.attributes.get("query_source")) or "").startswith("agent:")


def _is_of_main(span: SlimSpan) -> bool:
    """Return whether the main agent made a model call or tool call, according to its attributes."""
    if _agent_id(span) is not None:
        return False
    return span.name == _TOOL or (
        span.name == _REQUEST and span.attributes.get("llm_request.context") == "interaction"
    )


def _is_last(request: SlimSpan) -> bool:
    """Return whether the stop reason of a model call means that its agent has finished."""
    reason = request.attributes.get("stop_reason")
    return isinstance(reason, str) and reason not in ("", "tool_use", "pause_turn")


DIALECT = Dialect(
    "Claude Code",
    order=40,
    read=read,
    scopes=(SCOPE + "*",),
    complete=complete,
    sessions={SCOPE: "session.id"},
    reads={
        "role": ("query_source", "llm_request.context"),
        "links": tuple(
            "agent_id parent_agent_id request_id event.sequence is_async query_source"
            " llm_request.context".split()
        ),
        "times": ("duration_ms", "ttft_ms"),
        "status": ("success", "error", "decision"),
        "name": ("agent_name", "agent_id", "agent.name", "agent_type", "tool_name"),
        "conversation": _CONVERSATIONS,
        "request": ("user_prompt", "prompt", "new_context"),
        "answer": ("response.model_output", "response", "body"),
        "chosen": ("body",),
        "requested_model": ("model", "gen_ai.request.model"),
        "input_tokens": ("input_tokens", *INPUT_TOKENS),
        "output_tokens": ("output_tokens", *OUTPUT_TOKENS),
        "cache_read_tokens": ("cache_read_tokens",),
        "cache_written_tokens": ("cache_creation_tokens",),
        "cost_usd": ("cost_usd",),
        "finish_reasons": ("stop_reason",),
        "call_id": _CALL_IDS,
        "arguments": ("tool_input", "full_command", "file_path", *ARGUMENTS),
        "result": ("tool_output", "new_context", "output", "content", *RESULTS),
        "tool_type": ("gen_ai.tool.name",),
    },
)
