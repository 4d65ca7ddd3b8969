"""OpenCode 1.18: its own spans, the spans of the Vercel AI SDK, and its log records.

- An agent is a `SessionPrompt.run` span: one turn of one session. All turns that one process
  answers are in one trace.
- A model call is an `LLM.run` span. The AI SDK's spans `ai.streamText` and `ai.streamText.doStream`
  below it contain the answer. They end only after the tools that the model called.
- A tool call has two spans that no parent id connects. `ai.toolCall`, below the model call, has the
  content. `Tool.execute`, below the agent, contains the sub-agent. Both have the same session and
  call id.
- Log records name agents and sessions by the ids of spans that arrive later.

Spans are exported when they end, and `opencode run` does not export the last ones.

Source: OpenCode 1.18.33, `packages/opencode/src/session`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tracer.otel.dialects.dialect import Dialect, Role, SlimSpan, SpanFacts, text
from tracer.otel.dialects.session import Name, Opening, Session, SessionParts, Sign
from tracer.records.arguments import parsed
from tracer.records.spans import STATUS_ERROR, LogRecord

SCOPE = "opencode"

IN_FLIGHT = "its session names the session that opened it; the call is sent when it ends"
"""The evidence for the link from an agent to a tool call that is still running. The span of such a
call has not arrived."""

_PROMPT = "SessionHttpApi."
"""The beginning of the names of spans that answer a request of the user's client."""
_AGENT = "SessionPrompt.run"
_TITLE = "SessionPrompt.ensureTitle"
_IN_AGENT = (_TITLE, "SessionTools.resolve")
"""Names of spans whose parent is always an agent."""
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
_MOST_TURNS = 100
"""The maximum number of turns or cancellations of a session that one search examines."""
_MOST_OF_A_BODY = 4096
"""The number of characters of a log record that are searched for fields."""
_MOST_OF_A_PROMPT = 200
_MOST_OF_A_TITLE = 200


# --- Log records ---------------------------------------------------------------------------------

_FIELD = re.compile(
    r'"(session\.id|id|parentID|agent|mode|messageID|providerID|modelID)":(?:"([^"\\]*)"|[^",}]+)'
)
_STREAM_ERROR = re.compile(r'"error":\{"error":(.*)\}\}', re.DOTALL)


@dataclass(slots=True)
class _Notes:
    """Facts from log records. The body of a record is a name and text that resembles JSON."""

    steps: dict[bytes, list[int]] = field(default_factory=dict)
    """By the span id of an agent: when it began each of its steps, and when it ended the last."""
    sessions: dict[bytes, str | None] = field(default_factory=dict)
    """By the span id of an agent."""
    exits: dict[bytes, int] = field(default_factory=dict)
    """By the span id of an agent: when it ended its loop of steps."""
    streams: dict[bytes, tuple[int, dict[str, str | None]]] = field(default_factory=dict)
    """By the span id of a model call: when it began, and the fields of its log record."""
    errors: dict[bytes, str] = field(default_factory=dict)
    """By the span id of a model call: why it failed."""
    messages: dict[str | None, bytes] = field(default_factory=dict)
    """By the id of a message: the id of the `SessionProcessor.process` span that wrote it."""
    parents: dict[str | None, str | None] = field(default_factory=dict)
    """By session: the session that started it; None if the user started it."""
    agents: dict[str | None, str | None] = field(default_factory=dict)
    """By session: the name of the agent for which the session was started."""
    cancels: dict[str | None, list[int]] = field(default_factory=dict)
    """By session: the times at which the user stopped it."""

    def add(self, record: LogRecord) -> None:
        """Add the facts of a log record."""
        body = record.body
        if not isinstance(body, list) or not all(isinstance(each, str) for each in body[:2]):
            return
        name, details = (*body[:2], "", "")[:2]
        details = details[:_MOST_OF_A_BODY]
        found: dict[str, str | None] = {}
        for match in _FIELD.finditer(details):
            found.setdefault(match[1], match[2])
        session, span_id, time = found.get("session.id"), record.span_id, record.time
        if name == "created" and (new := found.get("id")):
            self.parents[new] = found.get("parentID")
            self.agents.setdefault(new, found.get("agent"))
        elif name == "cancel" and session:
            self.cancels.setdefault(session, []).append(time)
        elif span_id is None:
            return
        elif name == "loop":
            self.sessions.setdefault(span_id, session)
            self.steps.setdefault(span_id, []).append(time)
        elif name == "exiting loop":
            self.exits[span_id] = time
        elif name == "stream":
            self.streams.setdefault(span_id, (time, found))
            if found.get("mode") == "primary" and session:
                self.parents.setdefault(session, None)
        elif name == "stream error" and (failure := _STREAM_ERROR.search(details)):
            self.errors[span_id] = failure[1]
        elif name == "process":
            self.messages.setdefault(found.get("messageID"), span_id)


# --- Signs of work -------------------------------------------------------------------------------


def signs(parts: SessionParts) -> Iterable[Sign | Opening]:
    """Return what the spans and log records of a run state about its work. See `Session`."""
    return _Reader(parts).signs()


@dataclass(slots=True, eq=False)
class _Turn:
    """An agent: one turn of a session."""

    name: Name
    start: int
    end: int
    session: str | None
    span: SlimSpan | None = None
    span_id: bytes | None = None


@dataclass(slots=True, eq=False)
class _Round:
    """One model call."""

    span_id: bytes
    start: int
    fields: dict[str, str | None]
    """The fields of its log record."""
    session: str | None
    span: SlimSpan | None = None
    """The `LLM.run` span of the model call, or else the outermost span of the AI SDK."""
    outer: SlimSpan | None = None
    """The last of the outermost AI SDK spans. It has the end, the status and the content."""
    within: list[SlimSpan] = field(default_factory=list)
    """All AI SDK spans of the model call."""

    @property
    def is_title(self) -> bool:
        if self.fields:
            return self.fields.get("agent") == "title"
        above = self.span.parent if self.span is not None else None
        return (above is not None and above.name == _TITLE) or any(
            _TITLE_PROMPT in _prompt(span)[:_MOST_OF_A_PROMPT] for span in self.within
        )


class _Reader:
    """Reads the signs of one run."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts, self._spans = parts, parts.spans
        self._notes = notes = _Notes()
        for record in parts.logs:
            notes.add(record)
        self._round_of: dict[SlimSpan, _Round] = {}
        """The model call of each span of the AI SDK."""
        self._rounds = sorted(self._find_rounds(), key=lambda each: (each.start, each.span_id))
        self._by_step = {
            each.span.parent_span_id: each
            for each in self._rounds
            if each.span is not None and not each.is_title
        }
        self._turns = self._find_turns()
        self._of_session: dict[str | None, list[_Turn]] = {}
        self._name_sessions()
        self._parents: dict[str | None, str] = {}
        """By session: the session that started it."""
        self._roots: set[str | None] = set()
        """The sessions that the user started."""
        self._find_parents()
        self._opened: dict[bytes, list[_Turn]] = {}
        """The agents that a tool call started, by the id of its `Tool.execute` span."""
        self._waiting: list[_Turn] = []
        self._requests: dict[tuple[Name, ...], str | None] = {}
        self._titled: dict[tuple[Name, ...], str | None] = {}
        self._names: dict[tuple[Name, ...], str] = {}

    def signs(self) -> Iterator[Sign | Opening]:
        for turn in self._turns.values():
            above = self._above(turn)
            # A background task ends with a turn of the session that started it, below its call.
            is_of_caller = turn.session and above is not None and turn.session == _session(above)
            if above is not None and above.name == _EXECUTE and not is_of_caller:
                self._opened.setdefault(above.span_id, []).append(turn)
        yield from self._of_calls()
        for each in self._rounds:
            yield from self._of_round(each)
        turns = sorted(
            {each.name: each for of in self._of_session.values() for each in of}.values(),
            key=lambda each: (each.start, each.name),
        )
        turns += [each for each in self._turns.values() if each.session is None]
        self._waiting = turns
        for turn in turns:  # the list grows
            yield from self._of_turn(turn)

    # --- Agents and sessions ---------------------------------------------------------------------

    def _find_turns(self) -> dict[bytes, _Turn]:
        starts = {span.span_id: span.start for span in self._spans if span.name == _AGENT}
        inside = [
            (span.missing_parent, span.start)
            for span in self._spans
            if span.name in _IN_AGENT and span.missing_parent is not None
        ]
        for span_id, start in (
            *inside,
            *((key, min(each)) for key, each in self._notes.steps.items()),
        ):
            if span_id not in self._parts.by_id:
                starts[span_id] = min(start, starts.get(span_id, start))
        turns = {}
        for span_id, start in starts.items():
            span = self._parts.by_id.get(span_id)
            end = self._notes.exits.get(span_id, 0)
            if span is not None:
                span.facts = SpanFacts(Role.AGENT)
                span.end = end = span.end or end
            session = self._notes.sessions.get(span_id)
            turns[span_id] = _Turn(("turn", span_id), start, end, session, span, span_id)
        return turns

    def _climb(self, span_id: bytes | None) -> tuple[SlimSpan | None, bytes | None]:
        """Return the nearest agent, tool call or request of a client, from a span upwards.

        If a span on the way has not arrived, its id is returned instead.
        """
        return self._parts.climb(
            span_id, lambda each: each.name in (_AGENT, _EXECUTE) or each.name.startswith(_PROMPT)
        )

    def _above(self, turn: _Turn) -> SlimSpan | None:
        return self._climb(turn.span.parent_span_id)[0] if turn.span is not None else None

    def _name_sessions(self) -> None:
        """Set the session of agents without a log record to that of the first work below them."""
        named = [(each.span, each.session) for each in self._rounds if each.span is not None]
        named += [(span, _session(span)) for span in self._spans if span.name == _EXECUTE]
        for span, session in sorted(named, key=lambda each: each[0].order):
            above, missing = self._climb(span.parent_span_id)
            turn = self._turns.get(above.span_id if above is not None else missing or b"")
            if turn is not None:
                turn.session = turn.session or session
        for turn in sorted(self._turns.values(), key=lambda each: (each.start, each.name)):
            if turn.session is not None:
                self._of_session.setdefault(turn.session, []).append(turn)

    def _find_parents(self) -> None:
        parents, roots, created = self._parents, self._roots, self._notes.parents
        for new, parent in created.items():
            if parent is not None and parent != new:
                parents[new] = parent
        for span in self._round_of:
            session, parent = _session(span), text(span.attributes.get(_PARENT_HEADER))
            if parent and session is not None and parent != session:
                parents.setdefault(session, parent)
            elif not parent and any(name in span.attributes for name in _SESSION_HEADERS):
                roots.add(session)
        roots |= {each.session for each in self._rounds if each.is_title}  # sub-agents have none
        for span in self._spans:
            session, child = _session(span), _child_session(span)
            if child is not None and session is not None and child != session:
                parents.setdefault(child, session)
        roots |= {session for session, parent in created.items() if parent is None}
        roots -= {None, *parents}

    def _agent(
        self, span_id: bytes | None, session: str | None, start: int, end: int
    ) -> tuple[Name, ...]:
        """Return the name of the agent that did some work; none if that is unknown.

        If no id leads to an agent, it is the one that was working in the session.
        """
        above, missing = self._climb(span_id)
        turn = self._turns.get(above.span_id if above is not None else missing or b"")
        if turn is not None:
            return (turn.name,)
        if session is None or (above is not None and above.name == _EXECUTE):
            return ()
        turns = self._of_session.get(session)
        if turns is None:
            turns = self._of_session[session] = [_Turn(("session", session), start, 0, session)]
            self._waiting += turns
        elif len(turns) > 1:
            turns = [
                each
                for each in turns[:_MOST_TURNS]
                if each.start <= start and max(start, end) <= (each.end or inf)
            ]
        return (turns[0].name,) if len(turns) == 1 else ()

    def _of_turn(self, turn: _Turn) -> Iterator[Sign | Opening]:
        above, names, session = self._above(turn), (turn.name,), turn.session
        opener: Name = ("opener", turn.name)
        agent: tuple[Name, ...] = ()
        is_below = above is not None and above.name == _EXECUTE
        is_turn = not is_below and (above is not None or session in self._roots)
        if above is not None and turn in self._opened.get(above.span_id, ()):
            yield Opening(turn.name, opener)
        elif above is not None and is_below:
            agent = self._agent(above.parent_span_id, session, above.start, above.end)
        elif not is_turn and session in self._parents:
            parent = self._parents[session]
            caller = self._agent(None, parent, turn.start, turn.start)
            if caller and caller != names:
                facts = SpanFacts(Role.TOOL, name="task", conversation=parent)
                yield Sign(
                    *(Role.TOOL, (opener,)),
                    start=turn.start,
                    agent=caller,
                    facts=facts,
                    lasting=opener,
                )
                yield Opening(turn.name, opener, IN_FLIGHT)
        if is_turn and turn.span is not None:  # the spans above it are of the client
            turn.span.parent = turn.span.parent_span_id = turn.span.missing_parent = None
        request = self._requests.get(names) or self._titled.get(names)
        is_placed = is_turn or bool(agent)
        name = self._names.get(names) or self._notes.agents.get(session)
        yield Sign(
            Role.AGENT,
            names,
            start=turn.start,
            end=turn.end,
            span=turn.span,
            span_id=turn.span_id,
            agent=agent,
            facts=SpanFacts(Role.AGENT),
            fields={
                "name": name or (SCOPE if is_placed else None),
                "conversation": session,
                "request": request,
                "title": _title(request),
                "is_placed": is_placed,
                "is_interrupted": turn.span is not None and _is_interrupted(turn.span),
            },
            is_turn=is_turn,
        )

    # --- Model calls -----------------------------------------------------------------------------

    def _find_rounds(self) -> Iterable[_Round]:
        rounds = {
            span_id: _Round(span_id, time, fields, fields.get("session.id"))
            for span_id, (time, fields) in self._notes.streams.items()
        }
        for span in self._spans:
            if span.name == _ROUND:
                found = rounds.setdefault(span.span_id, _Round(span.span_id, 0, {}, None))
                found.span, found.start = span, span.start
        for span in filter(_is_of_model, self._spans):
            outer, _ = self._parts.climb(
                span.span_id, lambda each: each.parent is None or not _is_of_model(each.parent)
            )
            if outer is None:
                continue
            above = outer.missing_parent or (outer.parent.span_id if outer.parent else b"")
            if outer.missing_parent is None and above not in rounds:
                above = outer.span_id
            found = rounds.setdefault(above, _Round(above, outer.start, {}, None))
            found.span = found.span or (outer if above == outer.span_id else None)
            found.outer = span if span is outer else found.outer
            found.within.append(span)
            found.session = found.session or _session(span)
            self._round_of[span] = found
        return rounds.values()

    def _of_round(self, each: _Round) -> Iterator[Sign]:
        """Return the signs of a model call, and those of an agent that writes a title with it."""
        span, outer = each.span, each.outer
        below = span.parent_span_id if span is not None else None
        agent = self._agent(below, each.session, each.start, each.start)
        if not agent and each.session is None and outer is None:
            return
        step = span.parent if span is not None else None
        has_answer = any(part.facts.output_tokens is not None for part in each.within)
        name, is_logged = each.fields.get("agent"), outer is None
        facts = SpanFacts(
            Role.MODEL,
            conversation=each.session,
            agent=name,
            model=each.fields.get("modelID") if is_logged else None,
            provider=each.fields.get("providerID") if is_logged else None,
            is_provider_chosen=True,  # users name providers in `opencode.json`
            is_interrupted=_is_interrupted_step(step) and not has_answer,
        )
        for part in each.within:
            user = part.facts.subject if part.facts.subject != _NO_USER else None
            part.facts = part.facts._replace(
                role=Role.MODEL, name=None, subject=user, is_provider_chosen=True
            )
        if span is not None and span is outer:
            facts = span.facts._replace(conversation=each.session, agent=name)
        end = outer.end if outer is not None else self._end_of(each, agent)
        message = self._notes.errors.get(each.span_id) if outer is None else None
        source = outer or span
        has_failed = source is not None and source.status_code == STATUS_ERROR
        if source is not None and has_failed:
            message = source.status_message or message or ""
        if span is not None:
            span.facts = facts
            if outer is not None:
                span.status_code, span.status_message = outer.status_code, outer.status_message
                span.events = outer.events
            if outer is not None or not has_failed or not span.end:
                span.end = end
        if each.is_title:
            title: Name = ("title", each.span_id)
            fields = {"name": "title", "conversation": each.session, "is_placed": bool(agent)}
            yield Sign(Role.AGENT, (title,), start=each.start, end=end, agent=agent, fields=fields)
        asked = self._titled if each.is_title else self._requests
        if asked.get(agent) is None and (each.is_title or name not in _HIDDEN_AGENTS):
            asked[agent] = _asked_in(each)
        if name is not None and name not in _HIDDEN_AGENTS:
            self._names.setdefault(agent, name)
        yield Sign(
            Role.MODEL,
            (("round", each.span_id),),
            start=each.start,
            end=end,
            span=span,
            span_id=each.span_id,
            agent=(title,) if each.is_title else agent,
            facts=facts,
            error=message,
        )

    def _end_of(self, each: _Round, agent: tuple[Name, ...]) -> int:
        """Return when a model call without AI SDK spans ended; 0 if that is unknown.

        The call ended when the step around it ended, or when its agent began the next step.
        """
        above = each.span.parent if each.span is not None else None
        if above is not None and above.name in (_STEP, _TITLE) and above.end:
            return above.end
        turn = self._turns.get(agent[0][1]) if agent and not each.is_title else None
        if turn is None:
            return 0
        ends = (*self._notes.steps.get(agent[0][1], ()), turn.end)
        return min((end for end in ends if end > each.start), default=0)

    # --- Tool calls ------------------------------------------------------------------------------

    def _of_calls(self) -> Iterator[Sign]:
        """Return the signs of tool calls. Each has up to two spans."""
        spans: dict[Name, list[SlimSpan]] = {}
        for span in self._spans:
            if span.name == _EXECUTE or _has_content(span):
                spans.setdefault(("call", _session(span), _call_id(span)), []).append(span)
        for name, same in spans.items():
            executed = [span.name == _EXECUTE for span in same]
            is_unique = name[2] is not None and executed.count(True) < 2 > executed.count(False)
            for span in same:
                names: tuple[Name, ...] = (name,) if is_unique else ()
                if not is_unique and (span.name == _EXECUTE or name[2] is None):
                    names = (("span", span.span_id),)
                yield self._of_call(span, name, names)

    def _of_call(self, span: SlimSpan, name: Name, names: tuple[Name, ...]) -> Sign:
        is_content = span.name != _EXECUTE
        session = _session(span)
        opened = self._opened.get(span.span_id, [])
        if is_content and names:
            children = self._of_session.get(_child_session(span)) or []
            opened = children if len(children) == 1 and self._above(children[0]) is None else []
        openers = [("opener", turn.name) for turn in opened]
        result = span.facts.result if is_content else None
        output = parsed(result)
        shown = output.get("output") if isinstance(output, dict) else None
        arguments = parsed(span.facts.arguments) if is_content else None
        agent_type = arguments.get("subagent_type") if isinstance(arguments, dict) else None
        tool = _tool_name(span)
        fields: dict[str, Any] = {
            "name": tool,
            "call_id": name[2],
            "conversation": session,
            "arguments": span.facts.arguments if is_content else None,
            "result": shown if isinstance(shown, str) else result,
            "has_failed": tool == _INVALID or _has_failed(output) or None,
        }
        error = span.status_message if span.status_code == STATUS_ERROR else None
        if self._is_stopped(span, opened):
            fields |= {"is_interrupted": True, "has_failed": False}
            span.status_code, span.status_message, span.events = 0, "", ()
        if not is_content:
            span.facts = SpanFacts(Role.TOOL)
        return Sign(
            Role.TOOL,
            (*names, *openers) if names else (),
            call_id=name,
            stage=1 if is_content else 0,
            time=span.end,
            start=span.start,
            end=span.end,
            span=None if is_content else span,
            part=span if is_content else None,
            lasting=openers[0] if openers else None,
            agent=self._agent(span.parent_span_id, session, span.start, span.end),
            round=self._round(span)[1],
            facts=SpanFacts(Role.TOOL),
            fields=fields,
            opened={"name": text(agent_type)},
            error=error,
        )

    def _round(self, span: SlimSpan) -> tuple[_Round | None, Name | None]:
        """Return the model call that chose a tool call, and its name, even if it is missing."""
        message = text(span.attributes.get("message.id"))
        found = self._round_of.get(span.parent or span)
        if span.name == _EXECUTE and found is None:
            found = self._by_step.get(self._notes.messages.get(message))
        if found is not None:
            return found, ("round", found.span_id)
        awaited = message if span.name == _EXECUTE else span.missing_parent
        return None, ("missing", awaited) if awaited is not None else None

    def _is_stopped(self, span: SlimSpan, opened: list[_Turn]) -> bool:
        """Return whether a tool call was running when the user stopped its session."""
        cancels = self._notes.cancels.get(_session(span), ())
        model, _ = self._round(span)
        step = model.span.parent if model is not None and model.span is not None else None
        return (
            any(span.start < time <= span.end for time in cancels[:_MOST_TURNS])
            or any(turn.span is not None and _is_interrupted(turn.span) for turn in opened)
            or (step is not None and _is_interrupted_step(step) and step.end <= span.end)
        )


def _is_of_model(span: SlimSpan) -> bool:
    """Return whether a span is the AI SDK's span of a model call."""
    return (
        span.scope == SCOPE
        and span.facts.role in (Role.AGENT, Role.MODEL)
        and span.name.startswith("ai.")
    )


def _has_content(span: SlimSpan) -> bool:
    return span.facts.role is Role.TOOL and span.name.startswith(_CONTENT)


def _session(span: SlimSpan) -> str | None:
    session = span.attributes.get("session.id")
    return session if isinstance(session, str) and session else None


def _call_id(span: SlimSpan) -> str | None:
    call_id = span.attributes.get("tool.call_id" if span.name == _EXECUTE else "ai.toolCall.id")
    return call_id if isinstance(call_id, str) and call_id else None


def _tool_name(span: SlimSpan) -> str | None:
    return text(span.attributes.get("tool.name" if span.name == _EXECUTE else "ai.toolCall.name"))


def _is_interrupted(span: SlimSpan) -> bool:
    return span.attributes.get(_INTERRUPTED) is True


def _is_interrupted_step(span: SlimSpan | None) -> bool:
    return span is not None and span.name == _STEP and span.end > 0 and _is_interrupted(span)


def _child_session(content: SlimSpan) -> str | None:
    """Return the session that a call opened, according to the call's result."""
    if not _has_content(content) or "sessionId" not in (content.facts.result or ""):
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


def _asked_in(model_round: _Round) -> str | None:
    """Return the user's request: the last user message of a model call."""
    prompt = next(filter(None, map(_prompt, model_round.within)), None)
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
    session=Session(signs, name=SCOPE),
    reads={
        "links": ("session.id", "message.id", *_SESSION_HEADERS, _PARENT_HEADER),
        "status": (_INTERRUPTED,),
        "name": ("tool.name", "ai.toolCall.name"),
        "request": ("ai.prompt.messages", "ai.prompt"),
        "call_id": ("tool.call_id", "ai.toolCall.id"),
    },
)
