"""OpenCode 1.18: its own spans, the spans of the Vercel AI SDK, and its log records.

- An agent is a `SessionPrompt.run` span: one turn of one session. All turns that one process
  answers are in one trace.
- A model call is an `LLM.run` span. The AI SDK's spans `ai.streamText` and `ai.streamText.doStream`
  below it contain the answer. They end only after the tools that the model called.
- A tool call has two spans that no parent id connects. `ai.toolCall`, below the model call, has the
  content. `Tool.execute`, below the agent, contains the sub-agent. Both have the same session and
  call id.
- Log records name agents and sessions by the ids of spans that arrive later.

Spans are exported when they end, and `opencode run` does not export the last ones. This module
therefore creates missing agents, model calls and tool calls. Their ids stay the same when the real
spans arrive.

Source: OpenCode 1.18.33, `packages/opencode/src/session`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    cut_circles,
    synthetic_span,
    text,
)
from tracer.records.arguments import parsed
from tracer.records.spans import SPAN_ID_BYTES, STATUS_ERROR, LogRecord

SCOPE = "opencode"

IN_FLIGHT = "its session names the session that opened it; the call is sent when it ends"
"""The evidence for the link from an agent to a tool call that is still running. The span of such a
call has not arrived."""

_PROMPT = "SessionHttpApi."
"""The beginning of the names of spans that answer a request of the user's client."""
_AGENT = "SessionPrompt.run"
_TITLE = "SessionPrompt.ensureTitle"
_RESOLVE = "SessionTools.resolve"
_STEP = "SessionProcessor.process"
_ROUND = "LLM.run"
_EXECUTE = "Tool.execute"
_CONTENT = "ai.toolCall"
_TITLE_PROMPT = "You are a title generator"
_HIDDEN_AGENTS = ("title", "compaction", "summary")
"""Internal agents of OpenCode. They work in the session of the agent that they help."""
_SESSION_HEADERS = (
    "ai.request.headers.x-session-affinity",
    "ai.request.headers.x-opencode-session",
)
_PARENT_HEADER = "ai.request.headers.x-parent-session-id"
"""An attribute of a sub-agent's model calls: the session that started the sub-agent."""
_INTERRUPTED = "status.interrupted"
_NO_USER = "unknown"
_INVALID = "invalid"
"""The tool that answers if the model requested a tool that does not exist."""
_SLACK = 20_000_000
"""The largest gap in nanoseconds between the two spans of one tool call. There may be a gap because
the spans use different clocks."""
_MOST_TURNS = 100
"""The maximum number of turns or tool calls of a session that one search examines."""
_MOST_OF_A_BODY = 4096
"""The number of characters of a log record that are searched for fields."""
_MOST_OF_A_PROMPT = 200
_MOST_OF_A_TITLE = 200


def complete(spans: list[SlimSpan], logs: list[LogRecord]) -> list[SlimSpan]:
    """Return the spans of a run, after its agents, model calls and tool calls are reconstructed."""
    completed = _OpenCodeRun(spans, logs).completed()
    for span in completed:
        if span.facts.role is Role.MODEL:  # users name providers in `opencode.json`
            span.facts = span.facts._replace(is_provider_chosen=True)
    return completed


# --- Log records ---------------------------------------------------------------------------------


class _RoundStart(NamedTuple):
    """The start of a model call, from the log record that has the id of its `LLM.run` span."""

    session: str | None
    agent: str | None
    provider: str | None
    model: str | None
    time: int


_FIELD = re.compile(
    r'"(session\.id|id|parentID|agent|mode|messageID|providerID|modelID)":(?:"([^"\\]*)"|[^",}]+)'
)
_STREAM_ERROR = re.compile(r'"error":\{"error":(.*)\}\}', re.DOTALL)


@dataclass(slots=True)
class _Notes:
    """Facts from log records. The body of a record is a name and text that resembles JSON."""

    loops: dict[bytes, tuple[str | None, list[int]]] = field(default_factory=dict)
    """By the span id of an agent: its session, and when it began each of its steps."""
    exits: dict[bytes, int] = field(default_factory=dict)
    """By the span id of an agent: when it ended its loop of steps."""
    streams: dict[bytes, _RoundStart] = field(default_factory=dict)
    errors: dict[bytes, str] = field(default_factory=dict)
    """By the span id of a model call: why it failed."""
    steps: dict[str, bytes] = field(default_factory=dict)
    """By the id of a message: the id of the `SessionProcessor.process` span that wrote it."""
    parents: dict[str, str | None] = field(default_factory=dict)
    """By session: the session that started it; None if the user started it."""
    agents: dict[str, str] = field(default_factory=dict)
    """By session: the name of the agent for which the session was started."""
    cancels: dict[str, list[int]] = field(default_factory=dict)
    """By session: the times at which the user stopped it."""

    @classmethod
    def of(cls, logs: Iterable[LogRecord]) -> _Notes:
        notes = cls()
        for record in logs:
            body = record.body
            if (
                record.scope == SCOPE
                and isinstance(body, list)
                and len(body) >= 2
                and isinstance(body[0], str)
                and isinstance(body[1], str)
            ):
                notes._add(record, body[0], body[1][:_MOST_OF_A_BODY])
        return notes

    def _add(self, record: LogRecord, name: str, details: str) -> None:
        annotations: dict[str, str | None] = {}
        for match in _FIELD.finditer(details):
            annotations.setdefault(match[1], match[2])
        session, span_id = annotations.get("session.id"), record.span_id
        if name == "created":
            if new := annotations.get("id"):
                self.parents[new] = annotations.get("parentID")
                if agent := annotations.get("agent"):
                    self.agents.setdefault(new, agent)
        elif name == "cancel" and session:
            self.cancels.setdefault(session, []).append(record.time)
        elif span_id is None:
            return
        elif name == "loop":
            self.loops.setdefault(span_id, (session, []))[1].append(record.time)
        elif name == "exiting loop":
            self.exits[span_id] = record.time
        elif name == "stream":
            stream = _RoundStart(
                *(
                    session,
                    annotations.get("agent"),
                    annotations.get("providerID"),
                    annotations.get("modelID"),
                ),
                record.time,
            )
            self.streams.setdefault(span_id, stream)
            if annotations.get("mode") == "primary" and session:
                self.parents.setdefault(session, None)
        elif name == "stream error" and (failure := _STREAM_ERROR.search(details)):
            self.errors[span_id] = failure[1]
        elif name == "process" and (message := annotations.get("messageID")):
            self.steps.setdefault(message, span_id)


# --- The run -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Round:
    """One model call."""

    span: SlimSpan
    """The `LLM.run` span of the model call. If it has not arrived, it is created from a log record
    or replaced by a span of the AI SDK."""
    outer: list[SlimSpan] = field(default_factory=list)
    """The outermost AI SDK spans of the model call. They have its end, status and content."""
    within: list[SlimSpan] = field(default_factory=list)
    """All AI SDK spans of the model call."""
    owner: SlimSpan | None = None
    is_title: bool = False


@dataclass(slots=True, eq=False)
class _OpenCodeCall:
    """One tool call."""

    session: str | None
    execute: SlimSpan | None
    content: SlimSpan | None
    opened: list[SlimSpan] = field(default_factory=list)
    """The agents that the call started."""
    nth: int = 0
    """The index of the call among the calls of the session that have the same call id, from 0."""
    above: SlimSpan | None = None
    """The agent that made the call, or the tool call that contains it."""

    @property
    def spans(self) -> list[SlimSpan]:
        return [span for span in (self.content, self.execute) if span is not None]

    @property
    def call_id(self) -> str | None:
        return next((candidate for span in self.spans if (candidate := _call_id(span))), None)

    @property
    def start(self) -> int:
        return min(span.start for span in self.spans)

    @property
    def end(self) -> int:
        return max(span.end for span in self.spans)


class _OpenCodeRun:
    def __init__(self, spans: list[SlimSpan], logs: list[LogRecord]) -> None:
        self._spans = spans
        self._notes = _Notes.of(logs)
        self._own = [span for span in spans if span.scope == SCOPE]
        self._by_id = {span.span_id: span for span in spans}
        self._made: dict[bytes, SlimSpan] = {}
        self._agents: dict[SlimSpan, str | None] = {}
        """The session of each agent."""
        self._executes = [span for span in self._own if span.name == _EXECUTE]
        self._stops: set[SlimSpan] = set(self._executes)
        """Spans of agents and tool calls. Following the parents of a span ends at the first one."""
        self._ways: dict[SlimSpan, tuple[SlimSpan | None, SlimSpan]] = {}
        self._adopted: dict[SlimSpan, SlimSpan] = {}
        self._of_session: dict[str, list[SlimSpan]] = {}
        self._rounds: dict[SlimSpan, _Round] = {}
        self._parents: dict[str, str] = {}
        """By session: the session that started it."""
        self._roots: set[str] = set()
        """The sessions that the user started."""
        self._tops: list[tuple[SlimSpan, SlimSpan]] = []
        """The agents that answer the user, each with its topmost ancestor that has arrived."""
        self._placed: set[SlimSpan] = set()
        """The agents that no tool call started."""

    def completed(self) -> list[SlimSpan]:
        """Return all spans of the run, sorted by start and id."""
        self._find_agents()
        self._find_rounds()
        if not (self._agents or self._rounds or self._executes):
            return self._spans
        self._link_to_made()
        self._name_sessions()
        calls = self._find_calls()
        self._find_parent_sessions(calls)
        self._place_rounds()
        for call in calls:
            self._place_call(call)
        self._join_agents(calls)
        self._describe_agents(calls)
        self._add_calls(calls)
        self._join_turns()
        self._begin_before_children()
        cut_circles([*self._own, *self._made.values()])
        return sorted([*self._spans, *self._made.values()], key=lambda span: span.order)

    # --- Spans that have not arrived -------------------------------------------------------------

    def _make(self, span_id: bytes, name: str, role: Role, start: int) -> SlimSpan:
        made = synthetic_span(span_id, name, SCOPE, (start, 0), SpanFacts(role))
        self._made[span_id] = made
        return made

    def _new_id(self, *parts: object) -> bytes:
        """Return an id that depends only on `parts`, and that no span of the run has."""
        hashed = sha256(repr((SCOPE, *parts)).encode(errors="surrogatepass")).digest()
        while hashed[:SPAN_ID_BYTES] in self._by_id or hashed[:SPAN_ID_BYTES] in self._made:
            hashed = sha256(hashed).digest()
        return hashed[:SPAN_ID_BYTES]

    def _find_agents(self) -> None:
        firsts: dict[bytes, int] = {}
        for span in self._own:
            if span.name == _AGENT:
                self._add_agent(span, None)
            elif span.name in (_RESOLVE, _TITLE) and span.missing_parent is not None:
                firsts.setdefault(span.missing_parent, span.start)
        for span_id, (_, times) in self._notes.loops.items():
            firsts[span_id] = min(times[0], firsts.get(span_id, times[0]))
        for span_id, start in sorted(firsts.items()):
            agent = self._by_id.get(span_id)
            if agent is None:
                agent = self._make(span_id, _AGENT, Role.AGENT, start)
                agent.missing_parent = self._new_id("above", span_id)
            loop = self._notes.loops.get(span_id)
            self._add_agent(agent, loop[0] if loop is not None else None)

    def _add_agent(self, agent: SlimSpan, session: str | None) -> None:
        self._agents[agent] = self._agents.get(agent) or session
        self._stops.add(agent)

    def _find_rounds(self) -> None:
        for span in self._own:
            if span.name == _ROUND:
                self._rounds[span] = _Round(span)
        for span_id, stream in sorted(self._notes.streams.items()):
            arrived = self._by_id.get(span_id)
            span = arrived or self._make(span_id, _ROUND, Role.MODEL, stream.time)
            if span not in self._agents:
                self._rounds.setdefault(span, _Round(span))
        outermost: dict[SlimSpan, _Round] = {}
        for span in self._own:
            if not _is_of_model(span):
                continue
            parent = span.parent
            if parent is None and span.missing_parent in self._made:
                parent = self._made[span.missing_parent]
            if parent is not None and _is_of_model(parent):
                continue
            above = self._rounds.get(parent) if parent is not None else None
            if above is None:
                above = self._rounds[span] = _Round(span)
            above.outer.append(span)
            outermost[span] = above
        for span in self._own:
            if _is_of_model(span):
                parent = span.parent
                model_round = outermost.get(span) or (outermost.get(parent) if parent else None)
                if model_round is not None:
                    model_round.within.append(span)
        for model_round in outermost.values():
            for span in model_round.within:
                _read_as_round(span)

    def _link_to_made(self) -> None:
        for span in self._own:
            if span.missing_parent is not None and span.missing_parent in self._made:
                span.parent, span.missing_parent = self._made[span.missing_parent], None

    # --- Sessions --------------------------------------------------------------------------------

    def _way(self, span: SlimSpan) -> tuple[SlimSpan | None, SlimSpan]:
        """Follow the parent links of a span upwards.

        Returns:
            The nearest agent or tool call above the span (None if there is none), and the last span
            on the way to it.
        """
        way: list[SlimSpan] = []
        on_way: set[SlimSpan] = set()
        at = span
        while at not in self._ways:
            way.append(at)
            on_way.add(at)
            parent = at.parent
            if parent is None or parent in on_way:
                self._ways[at] = None, at
            elif parent in self._stops:
                self._ways[at] = parent, at
            else:
                at = parent
        end = self._ways[at]
        for each in way:
            self._ways[each] = end
        return end

    def _session_of_round(self, model_round: _Round) -> str | None:
        stream = self._notes.streams.get(model_round.span.span_id)
        if stream is not None and stream.session is not None:
            return stream.session
        return next((session for span in model_round.within if (session := _session(span))), None)

    def _name_sessions(self) -> None:
        """Set the session of agents without a log record to that of the first work below them."""
        named = [
            (model_round.span, self._session_of_round(model_round))
            for model_round in self._rounds.values()
        ]
        named += [(span, _session(span)) for span in self._executes]
        for span, session in sorted(named, key=lambda each: each[0].order):
            agent, _ = self._way(span)
            if agent is not None and session is not None and agent in self._agents:
                self._agents[agent] = self._agents[agent] or session
        for agent, session in sorted(self._agents.items(), key=lambda item: item[0].order):
            if session is not None:
                self._of_session.setdefault(session, []).append(agent)

    def _find_parent_sessions(self, calls: list[_OpenCodeCall]) -> None:
        parents, roots = self._parents, self._roots
        for new, parent in self._notes.parents.items():
            if parent is not None and parent != new:
                parents[new] = parent
        for model_round in self._rounds.values():
            for span in model_round.within:
                session, above = _session(span), span.attributes.get(_PARENT_HEADER)
                if session is None:
                    continue
                if isinstance(above, str) and above and above != session:
                    parents.setdefault(session, above)
                elif above is None and any(name in span.attributes for name in _SESSION_HEADERS):
                    roots.add(session)
            model_round.is_title = self._is_title(model_round)
            if model_round.is_title and (titled := self._session_of_round(model_round)):
                roots.add(titled)  # only sessions that the user opened have titles
        for call in calls:
            child = _child_session(call.content)
            if child is not None and call.session is not None and child != call.session:
                parents.setdefault(child, call.session)
        roots |= {session for session, parent in self._notes.parents.items() if parent is None}
        roots -= parents.keys()

    def _is_title(self, model_round: _Round) -> bool:
        stream = self._notes.streams.get(model_round.span.span_id)
        if stream is not None:
            return stream.agent == "title"
        parent = model_round.span.parent
        if parent is not None and parent.name == _TITLE:
            return True
        return any(
            _TITLE_PROMPT in _prompt(span)[:_MOST_OF_A_PROMPT] for span in model_round.within
        )

    def _agent_of(self, session: str, start: int, end: int) -> SlimSpan | None:
        """Return the agent that was working in a session at a time.

        Creates an agent if the session has none. Returns None if the choice between several agents
        is ambiguous.
        """
        agents = self._of_session.get(session)
        if agents is None:
            agent = self._make(self._new_id("agent", session), _AGENT, Role.AGENT, start)
            agent.missing_parent = self._new_id("above", agent.span_id)
            self._add_agent(agent, session)
            self._of_session[session] = [agent]
            return agent
        if len(agents) == 1:
            return agents[0]
        running = [
            agent
            for agent in agents[:_MOST_TURNS]
            if agent.start <= start and (agent.end == 0 or max(start, end) <= agent.end)
        ]
        return running[0] if len(running) == 1 else None

    def _adopt(self, span: SlimSpan, session: str | None) -> SlimSpan | None:
        """Return the agent or tool call above a span.

        If span ids lead to none, the agent of the session becomes the parent.
        """
        above, top = self._way(span)
        above = above or self._adopted.get(top)
        if above is not None or session is None:
            return above
        agent = self._agent_of(session, span.start, span.end)
        if agent is not None and agent is not top:
            top.parent, top.missing_parent = agent, None
            self._adopted[top] = agent
        return agent

    # --- Rounds ----------------------------------------------------------------------------------

    def _place_rounds(self) -> None:
        by_order = sorted(self._rounds.values(), key=lambda model_round: model_round.span.order)
        for model_round in by_order:
            session = self._session_of_round(model_round)
            model_round.owner = self._adopt(model_round.span, session)
            if model_round.owner is None and session is None and not model_round.outer:
                continue  # its agent is not known
            if model_round.owner is None and model_round.span.span_id in self._made:
                model_round.span.missing_parent = self._new_id("above", model_round.span.span_id)
            self._end_round(model_round)
            self._read_round(model_round, session)
            if model_round.is_title:
                self._set_aside(model_round, session)

    def _end_round(self, model_round: _Round) -> None:
        span, last = model_round.span, model_round.outer[-1] if model_round.outer else None
        if last is not None:
            if last is not span:
                span.end, span.events = last.end, last.events
                span.status_code, span.status_message = last.status_code, last.status_message
            return
        if (error := self._notes.errors.get(span.span_id)) is not None:
            span.status_code, span.status_message = STATUS_ERROR, error
        if span.status_code != STATUS_ERROR or span.end == 0:
            span.end = self._end_without_content(model_round)

    def _end_without_content(self, model_round: _Round) -> int:
        """Return when a model call without AI SDK spans ended; 0 if that is unknown.

        The call ended when the step around it ended, or when its agent began the next step.
        """
        span, owner = model_round.span, model_round.owner
        parent = span.parent
        if parent is not None and parent.name in (_STEP, _TITLE) and parent.end:
            return parent.end
        if owner is None or model_round.is_title:
            return 0
        _, steps = self._notes.loops.get(owner.span_id, (None, []))
        ends = [*steps, self._notes.exits.get(owner.span_id, 0), owner.end]
        return min((end for end in ends if end > span.start), default=0)

    def _read_round(self, model_round: _Round, session: str | None) -> None:
        span, stream = model_round.span, self._notes.streams.get(model_round.span.span_id)
        agent = stream.agent if stream is not None else None
        if span in model_round.outer:
            span.facts = span.facts._replace(conversation=session, agent=agent)
        elif model_round.outer or stream is None:
            span.facts = SpanFacts(Role.MODEL, conversation=session, agent=agent)
        else:
            span.facts = SpanFacts(
                Role.MODEL,
                conversation=session,
                agent=agent,
                model=stream.model,
                provider=stream.provider,
            )
        step = span.parent
        has_answer = any(each.facts.output_tokens is not None for each in model_round.within)
        if step is not None and _is_interrupted_step(step) and not has_answer:
            span.facts = span.facts._replace(is_interrupted=True)

    def _set_aside(self, model_round: _Round, session: str | None) -> None:
        """Move the model call that generates the session's title into an agent of its own."""
        span, owner = model_round.span, model_round.owner
        title = self._make(
            self._new_id("title", span.span_id), _TITLE, Role.AGENT, model_round.span.start
        )
        title.facts = SpanFacts(
            Role.AGENT, name="title", conversation=session, is_placed=owner is not None
        )
        title.end = span.end
        title.status_code, title.status_message = span.status_code, span.status_message
        title.events = span.events
        title.parent = owner
        if owner is None:
            title.missing_parent = self._new_id("above", title.span_id)
        span.parent, span.missing_parent = title, None

    # --- Tool calls ------------------------------------------------------------------------------

    def _find_calls(self) -> list[_OpenCodeCall]:
        executed: dict[tuple[str | None, str | None], list[SlimSpan]] = {}
        content: dict[tuple[str | None, str | None], list[SlimSpan]] = {}
        for span in self._own:
            if span.name == _EXECUTE:
                executed.setdefault((_session(span), _call_id(span)), []).append(span)
            elif _has_content(span):
                content.setdefault((_session(span), _call_id(span)), []).append(span)
        opened: dict[SlimSpan, list[SlimSpan]] = {}
        for agent in sorted(self._agents, key=lambda each: each.order):
            above, _ = self._way(agent)
            if above is None or above in self._agents:
                continue
            # A background task ends with a turn of the session that started it, below its call.
            if self._agents[agent] is None or self._agents[agent] != _session(above):
                opened.setdefault(above, []).append(agent)
        calls: list[_OpenCodeCall] = []
        for key in executed.keys() | content.keys():
            session, call_id = key
            pairs = self._pair(executed.get(key, []), content.get(key, []), opened, call_id)
            session_calls = [
                _OpenCodeCall(session, execute, span, opened.get(execute, []) if execute else [])
                for execute, span in pairs
            ]
            session_calls.sort(key=lambda call: (call.start, call.spans[0].span_id))
            for nth, call in enumerate(session_calls):
                call.nth = nth
            calls += session_calls
        return sorted(calls, key=lambda call: (call.start, call.spans[0].span_id))

    def _pair(
        self,
        executed: list[SlimSpan],
        content: list[SlimSpan],
        opened: dict[SlimSpan, list[SlimSpan]],
        call_id: str | None,
    ) -> list[tuple[SlimSpan | None, SlimSpan | None]]:
        """Pair the two spans of each tool call. All given spans have the same session and call id.

        A call that started a sub-agent is paired by the sub-agent's session, all others by time.

        Args:
            executed: The `Tool.execute` spans, sorted.
            content: The `ai.toolCall` spans, sorted.
            opened: The agents below each `Tool.execute` span.
            call_id: The call id; None if the spans have none, so that they cannot be paired.
        """
        if call_id is None:
            return [(span, None) for span in executed] + [(None, span) for span in content]
        pairs: list[tuple[SlimSpan | None, SlimSpan | None]] = []
        by_child: dict[str | None, list[SlimSpan]] = {}
        for span in content if len(content) > 1 else ():
            by_child.setdefault(_child_session(span), []).append(span)
        done: set[SlimSpan] = set()
        for execute in executed:
            children = {self._agents.get(agent) for agent in opened.get(execute, [])} - {None}
            same = by_child.get(children.pop(), []) if len(children) == 1 else []
            for span in same[:_MOST_TURNS]:
                if span not in done and _is_same(execute, span) and not _apart(execute, span):
                    pairs.append((execute, span))
                    done |= {execute, span}
                    break
        left = [span for span in executed if span not in done]
        others = [span for span in content if span not in done]
        at = other = 0
        while at < len(left) and other < len(others):
            execute, span = left[at], others[other]
            if _is_same(execute, span) and not _apart(execute, span):
                pairs.append((execute, span))
                at, other = at + 1, other + 1
            elif span.order < execute.order:
                pairs.append((None, span))
                other += 1
            else:
                pairs.append((execute, None))
                at += 1
        pairs += [(span, None) for span in left[at:]]
        pairs += [(None, span) for span in others[other:]]
        return pairs

    def _place_call(self, call: _OpenCodeCall) -> None:
        for session in (None, call.session):
            for span in (call.execute, call.content):
                if call.above is None and span is not None:
                    call.above = self._adopt(span, session)

    def _add_calls(self, calls: list[_OpenCodeCall]) -> None:
        """Create one span for each tool call.

        OpenCode exports two spans for a call. Both stay in the trace below the created span, but
        only the created span becomes a record.
        """
        by_step = {
            model_round.span.parent_span_id or b"": model_round
            for model_round in sorted(self._rounds.values(), key=lambda each: each.span.order)
            if not model_round.is_title
        }
        made: dict[SlimSpan | None, SlimSpan] = {}
        for call in calls:
            span = self._make(self._id_of(call), _EXECUTE, Role.TOOL, call.start)
            span.end = call.end
            self._read_call(call, span)
            if self._round_of(call, by_step) is None and self._names_a_round(call):
                span.facts = span.facts._replace(awaits_round=True)
            made |= dict.fromkeys(call.spans, span)
        for call in calls:
            span = made[call.spans[0]]
            model_round = self._round_of(call, by_step)
            if call.above in made:
                span.parent = made[call.above]
            else:
                span.parent = model_round.span if model_round is not None else call.above
            if span.parent is None:
                tops = (self._way(each)[1] for each in call.spans)
                span.missing_parent = next((top.missing_parent for top in tops), None)
            self._stop_call(call, span, model_round)
            for agent in call.opened:
                self._open(agent, span)
        for each, span in made.items():
            if each is not None:
                each.parent, each.missing_parent, each.facts = span, None, WRAPPER

    def _id_of(self, call: _OpenCodeCall) -> bytes:
        """Return the id of a tool call's created span.

        The id does not depend on which of the two original spans has arrived.
        """
        if call.opened:
            return self._opener_id(call.opened[0])
        call_id = call.call_id
        if call_id is None:
            return self._new_id("call", call.spans[0].span_id)
        return self._new_id("call", call.session, call_id, call.nth)

    def _opener_id(self, agent: SlimSpan) -> bytes:
        return self._new_id("opener", agent.span_id)

    def _round_of(self, call: _OpenCodeCall, by_step: dict[bytes, _Round]) -> _Round | None:
        """Return the model call that chose a tool call; None if ids do not identify it."""
        at = call.content.parent if call.content is not None else None
        while at is not None and _is_of_model(at) and at not in self._rounds:
            at = at.parent
        if at is not None and at in self._rounds:
            return self._rounds[at]
        message = call.execute.attributes.get("message.id") if call.execute is not None else None
        step = self._notes.steps.get(message) if isinstance(message, str) else None
        return by_step.get(step) if step is not None else None

    def _names_a_round(self, call: _OpenCodeCall) -> bool:
        """Return whether a call has the id of its model call, which may not have arrived."""
        if call.content is not None and call.content.missing_parent is not None:
            return True
        message = call.execute.attributes.get("message.id") if call.execute is not None else None
        return isinstance(message, str)

    def _read_call(self, call: _OpenCodeCall, made: SlimSpan) -> None:
        content, execute = call.content, call.execute
        name = next((name for span in call.spans if (name := _tool_name(span))), None)
        result = content.facts.result if content is not None else None
        fields = parsed(result)
        output = fields.get("output") if isinstance(fields, dict) else None
        made.facts = SpanFacts(
            Role.TOOL,
            name=name,
            call_id=call.call_id,
            conversation=call.session,
            arguments=content.facts.arguments if content is not None else None,
            result=output if isinstance(output, str) else result,
            has_failed=name == _INVALID or _has_failed(fields),
        )
        for span in (content, execute):
            if span is not None and span.status_code == STATUS_ERROR:
                made.status_code, made.status_message = STATUS_ERROR, span.status_message
                made.events = span.events
                break

    def _stop_call(self, call: _OpenCodeCall, span: SlimSpan, model_round: _Round | None) -> None:
        """Mark a tool call as interrupted if it was running when the user stopped its session."""
        cancels = self._notes.cancels.get(call.session or "", ())
        step = model_round.span.parent if model_round is not None else None
        if (
            any(call.start < time <= call.end for time in cancels[:_MOST_TURNS])
            or any(_is_interrupted(agent) for agent in call.opened)
            or (step is not None and _is_interrupted_step(step) and step.end <= call.end)
        ):
            span.status_code, span.status_message, span.events = 0, "", ()
            span.facts = span.facts._replace(is_interrupted=True, has_failed=False)

    # --- What opened agents ----------------------------------------------------------------------

    def _join_agents(self, calls: list[_OpenCodeCall]) -> None:
        """Find the tool calls that started agents, if parent ids do not lead to these calls."""
        by_execute = {call.execute: call for call in calls if call.execute is not None}
        by_child: dict[str, list[_OpenCodeCall]] = {}
        for call in calls:
            if not call.opened and (child := _child_session(call.content)):
                by_child.setdefault(child, []).append(call)
        opened = {agent for call in calls for agent in call.opened}
        waiting = sorted(self._agents, key=lambda each: each.order)
        while waiting:
            agent = waiting.pop()
            session = self._agents[agent]
            above, top = self._way(agent)
            outer = by_execute.get(above) if above is not None else None
            if outer is not None:
                if agent not in opened:
                    top.parent = outer.above
                    self._placed.add(agent)
            elif above is None and top.name.startswith(_PROMPT):
                self._answer_user(agent, top)
            elif above is None and session is not None:
                opener = self._opener_by_result(agent, session, by_child)
                if opener is not None:
                    opener.opened.append(agent)
                elif session in self._parents:
                    waiting += self._open_in_flight(agent, self._parents[session])
                elif session in self._roots:
                    self._answer_user(agent, top)

    def _answer_user(self, agent: SlimSpan, top: SlimSpan) -> None:
        top.missing_parent = None
        self._placed.add(agent)
        self._tops.append((agent, top))

    def _opener_by_result(
        self, agent: SlimSpan, session: str, by_child: dict[str, list[_OpenCodeCall]]
    ) -> _OpenCodeCall | None:
        """Return the tool call whose result names an agent's session.

        Returns None if the call may have started another agent of this session.
        """
        calls = by_child.get(session, [])[:_MOST_TURNS]
        if len(calls) == 1 and len(self._of_session[session]) == 1:
            return calls[0] if not calls[0].opened else None
        running = [
            call
            for call in calls
            if call.start <= agent.start and (not call.end or 0 < agent.end <= call.end)
        ]
        return running[0] if len(running) == 1 and not running[0].opened else None

    def _open_in_flight(self, agent: SlimSpan, session: str) -> list[SlimSpan]:
        """Create the tool call that started an agent and is still running.

        Returns:
            The agent that made the call, if it had to be created; otherwise an empty list.
        """
        known = len(self._agents)
        caller = self._agent_of(session, agent.start, agent.start)
        if caller is None or caller is agent:
            return []
        opener = self._make(self._opener_id(agent), _EXECUTE, Role.TOOL, agent.start)
        opener.facts = SpanFacts(Role.TOOL, name="task", conversation=session)
        opener.parent = caller
        self._open(agent, opener)
        agent.inferred = IN_FLIGHT
        return [caller] if len(self._agents) > known else []

    def _open(self, agent: SlimSpan, opener: SlimSpan) -> None:
        above, top = self._way(agent)
        if above is None:
            top.parent, top.missing_parent = opener, None

    # --- Agents ----------------------------------------------------------------------------------

    def _describe_agents(self, calls: list[_OpenCodeCall]) -> None:
        rounds: dict[SlimSpan, list[_Round]] = {}
        for model_round in sorted(self._rounds.values(), key=lambda each: each.span.order):
            if model_round.owner is not None:
                rounds.setdefault(model_round.owner, []).append(model_round)
        openers = {agent: call for call in calls for agent in call.opened}
        for agent, session in self._agents.items():
            named = rounds.get(agent, [])
            own = [model_round for model_round in named if not model_round.is_title]
            working = [
                model_round
                for model_round in own
                if model_round.span.facts.agent not in _HIDDEN_AGENTS
            ]
            titles = [model_round for model_round in named if model_round.is_title]
            request = _asked_in(working) or _asked_in(titles)
            agent.facts = SpanFacts(
                Role.AGENT,
                name=self._name_of(session, own, openers.get(agent))
                or (SCOPE if agent in self._placed else None),
                conversation=session,
                request=request,
                title=_title(request),
                is_placed=agent in self._placed,
                is_interrupted=_is_interrupted(agent),
            )
            if agent.end == 0:
                agent.end = self._notes.exits.get(agent.span_id, 0)
            last = own[-1].span if own else None
            if agent.end and last is not None and last.status_code == STATUS_ERROR:
                agent.status_code, agent.status_message = STATUS_ERROR, last.status_message
                agent.events = last.events

    def _name_of(
        self, session: str | None, own: list[_Round], opener: _OpenCodeCall | None
    ) -> str | None:
        for model_round in own:
            stream = self._notes.streams.get(model_round.span.span_id)
            if stream is not None and stream.agent and stream.agent not in _HIDDEN_AGENTS:
                return stream.agent
        if opener is not None and opener.content is not None:
            arguments = parsed(opener.content.facts.arguments)
            agent_type = arguments.get("subagent_type") if isinstance(arguments, dict) else None
            if isinstance(agent_type, str) and agent_type:
                return agent_type
        return self._notes.agents.get(session) if session is not None else None

    def _join_turns(self) -> None:
        """Create one agent above all turns of the trace, if the process answered several times."""
        if len(self._tops) < 2:
            return
        turns = sorted((agent for agent, _ in self._tops), key=lambda each: each.order)
        first, last = turns[0], turns[-1]
        made = self._make(self._new_id("process"), SCOPE, Role.AGENT, first.start)
        if all(turn.end for turn in turns):
            made.end = max(turn.end for turn in turns)
        made.status_code, made.status_message = last.status_code, last.status_message
        made.events = last.events
        made.facts = first.facts._replace(name=SCOPE, is_interrupted=last.facts.is_interrupted)
        for _, top in self._tops:
            top.parent = made

    def _begin_before_children(self) -> None:
        """Move the start of each created span to the start of its earliest descendant."""
        made = set(self._made.values())
        for span in sorted([*self._own, *made], key=lambda each: each.order):
            parent = span.parent
            while parent is not None and parent in made and parent.start > span.start:
                parent.start = span.start
                parent = parent.parent


def _is_of_model(span: SlimSpan) -> bool:
    """Return whether a span is the AI SDK's span of a model call."""
    return (
        span.scope == SCOPE
        and span.facts.role in (Role.AGENT, Role.MODEL)
        and span.name.startswith("ai.")
    )


def _has_content(span: SlimSpan) -> bool:
    return span.facts.role is Role.TOOL and span.name.startswith(_CONTENT)


def _read_as_round(span: SlimSpan) -> None:
    facts = span.facts
    subject = facts.subject if facts.subject != _NO_USER else None
    span.facts = facts._replace(role=Role.MODEL, name=None, subject=subject)


def _session(span: SlimSpan) -> str | None:
    session = span.attributes.get("session.id")
    return session if isinstance(session, str) and session else None


def _call_id(span: SlimSpan) -> str | None:
    call_id = span.attributes.get("tool.call_id" if span.name == _EXECUTE else "ai.toolCall.id")
    return call_id if isinstance(call_id, str) and call_id else None


def _tool_name(span: SlimSpan) -> str | None:
    return text(span.attributes.get("tool.name" if span.name == _EXECUTE else "ai.toolCall.name"))


def _is_same(execute: SlimSpan, content: SlimSpan) -> bool:
    return _tool_name(execute) == _tool_name(content)


def _apart(one: SlimSpan, other: SlimSpan) -> bool:
    """Return whether two spans did not overlap: one had ended before the other began."""
    return 0 < one.end < other.start - _SLACK or 0 < other.end < one.start - _SLACK


def _is_interrupted(span: SlimSpan) -> bool:
    return span.attributes.get(_INTERRUPTED) is True


def _is_interrupted_step(span: SlimSpan) -> bool:
    return span.name == _STEP and span.end > 0 and _is_interrupted(span)


def _child_session(content: SlimSpan | None) -> str | None:
    """Return the session that a call opened, according to the call's result."""
    if content is None or "sessionId" not in (content.facts.result or ""):
        return None
    fields = parsed(content.facts.result)
    metadata = fields.get("metadata") if isinstance(fields, dict) else None
    session = metadata.get("sessionId") if isinstance(metadata, dict) else None
    return session if isinstance(session, str) and session else None


def _has_failed(result: Any) -> bool:
    """Return whether a shell command failed, according to its exit code.

    The exit code of a killed command is null, which counts as a failure.
    """
    metadata = result.get("metadata") if isinstance(result, dict) else None
    return isinstance(metadata, dict) and "exit" in metadata and metadata["exit"] != 0


def _prompt(span: SlimSpan) -> str:
    attributes = span.attributes
    prompt = attributes.get("ai.prompt.messages") or attributes.get("ai.prompt")
    return prompt if isinstance(prompt, str) else ""


def _asked_in(rounds: Iterable[_Round]) -> str | None:
    """Return the user's request: the last user message of the first model call with a prompt."""
    prompts = (_prompt(span) for model_round in rounds for span in model_round.within)
    prompt = next((each for each in prompts if each), None)
    messages = parsed(prompt)
    if isinstance(messages, dict):
        messages = messages.get("messages")
    if not isinstance(messages, list):
        return None
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return _unquoted(_first_text(message.get("content")))
    return None


def _first_text(content: Any) -> str | None:
    """Return the first text of a message. OpenCode appends further texts of its own."""
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return next((each for each in texts if isinstance(each, str) and each), None)


def _unquoted(prompt: str | None) -> str | None:
    r"""Return a prompt without the quotes that `opencode run` adds: `"say \"hi\" twice"`."""
    if prompt is None or len(prompt) < 3 or prompt[0] != '"' or prompt[-1] != '"':
        return prompt
    inner = prompt[1:-1]
    is_one = '"' not in inner.replace('\\"', "")
    return inner.replace('\\"', '"') if is_one and " " in inner else prompt


def _title(request: str | None) -> str | None:
    lines = (request or "").strip().splitlines()
    if not lines:
        return None
    return lines[0] if len(lines[0]) <= _MOST_OF_A_TITLE else lines[0][:_MOST_OF_A_TITLE] + "…"


DIALECT = Dialect(
    "OpenCode",
    order=80,
    scopes=(SCOPE + "*",),
    complete=complete,
    reads={
        "links": ("session.id", "message.id", *_SESSION_HEADERS, _PARENT_HEADER),
        "status": (_INTERRUPTED,),
        "name": ("tool.name", "ai.toolCall.name"),
        "request": ("ai.prompt.messages", "ai.prompt"),
        "call_id": ("tool.call_id", "ai.toolCall.id"),
    },
)
