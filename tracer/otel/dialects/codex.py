"""Codex CLI 0.171: its spans and its log records.

Three kinds of spans become records: the span of a turn is an agent, `run_sampling_request` is a
model call, and the span that dispatches a tool is a tool call. Nearly all other spans are internal
to Codex and are ignored.

- Spans contain the lineage and the token counts. Log records contain the content. Either signal may
  be missing.
- Spans contain the id of their turn. Log records contain only the id of their conversation, in
  which turns follow each other. An agent is named by both: its turn, and, if this is the first turn
  of a conversation in the trace, the conversation.
- The log records of a model's stream have neither trace nor span. They are joined by conversation
  and time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    count,
    first_text,
    text,
)
from tracer.otel.dialects.session import Name, Opening, Session, SessionParts, Sign
from tracer.records.arguments import parsed
from tracer.records.spans import Attributes, LogRecord, ReadableSpan

SCOPE = "codex"
"""The beginning of the names of all scopes of Codex: `codex_exec`, `codex_otel.log_only` …"""

_AGENTS = ("session_task.turn", "session_task.review", "session_task.compact")
_ANSWER = "codex.sampling"
"""The span of the part of a model call that ends with the answer. The span of the whole model call
also contains the tool calls, which run longer."""
_MODEL = "run_sampling_request"
_INPUT = "codex.turn_input"
_OF_TURNS = (_INPUT, "run_turn", "try_run_sampling_request", _ANSWER)
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
_RESULT, _MESSAGE = "codex.tool_result", "codex.agent_communication"
_REQUESTS = ("codex.api_request", "codex.websocket_request")
_WORK = ("codex.user_prompt", "codex.tool_decision", _RESULT, *_REQUESTS)
"""Names of log records that are written only during a turn."""
_SOON = 2_000_000
"""The maximum time in nanoseconds from the end of the span with the token counts to the end of the
model's answer."""
_MOST_OPEN = 100
"""The number of answers without a model call above which nothing is compared with them."""
_COUNTS = {
    "input_tokens": ("gen_ai.usage.input_tokens", "input_token_count"),
    "output_tokens": ("gen_ai.usage.output_tokens", "output_token_count"),
    "cache_read_tokens": ("gen_ai.usage.cache_read.input_tokens", "cached_token_count"),
    "cache_written_tokens": ("gen_ai.usage.cache_write.input_tokens", "cache_write_token_count"),
}


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


def _bare_name(name: str | None) -> str | None:
    for namespace in _NAMESPACES:
        if name is not None and name.startswith(namespace) and name != namespace:
            return name.removeprefix(namespace)
    return name


# --- Signs of work -------------------------------------------------------------------------------


def signs(parts: SessionParts) -> Iterable[Sign | Opening]:
    """Return what the spans and log records of a run state about its work. See `Session`."""
    return _Reader(parts).signs()


class _Reader:
    """Reads the signs of one run."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts, self._spans = parts, parts.spans
        self._stream = [each for each in parts.logs if each.name == "codex.sse_event"]
        # Other records without a trace may belong to other turns of the conversation.
        self._logs = [each for each in parts.logs if any(each.trace_id)]
        self._conversations: dict[str, str] = {}
        """The conversation of each turn."""
        starts: dict[str, int] = {}
        for span in self._spans:
            if (turn := _turn(span)) is None:
                continue
            if (conversation := _conversation(span)) is not None:
                self._conversations.setdefault(turn, conversation)
            if span.facts.role is not Role.WRAPPER or span.name in _OF_TURNS:
                starts.setdefault(turn, span.start)
        self._turns: dict[str | None, list[tuple[int, str]]] = {}
        """The start and the id of each turn, by conversation and sorted."""
        for turn, start in starts.items():
            self._turns.setdefault(self._conversations.get(turn), []).append((start, turn))
        for turns in self._turns.values():
            turns.sort()
        self._children: set[str | None] = {None}
        """The conversations of sub-agents."""

    def signs(self) -> Iterator[Sign | Opening]:
        yield from self._of_answers()
        for span in self._spans:
            if span.facts.role is Role.AGENT:
                names = self._agent(span)
                yield Sign(Role.AGENT, names, span=span, lasting=names[0] if names else None)
            elif span.facts.role is Role.MODEL:
                yield Sign(
                    Role.MODEL,
                    (("model", span.span_id),),
                    call_id=("stream", self._conversations.get(_turn(span) or "")),
                    span=span,
                    agent=self._agent(span),
                )
            elif span.facts.role is Role.TOOL or _is_of_call(span):
                yield from self._of_call(span)
        yield from self._of_requests()
        yield from self._of_stream()
        yield from self._of_logged_calls()
        yield from self._of_agents()

    def _climb(self, span_id: bytes | None) -> tuple[SlimSpan | None, bytes | None]:
        """Return the first agent, model call or tool call from a span upwards.

        If a span on the way has not arrived, its id is returned instead.
        """
        return self._parts.climb(span_id, lambda each: each.facts.role is not Role.WRAPPER)

    # --- Agents ----------------------------------------------------------------------------------

    def _agent(self, part: SlimSpan | LogRecord) -> tuple[Name, ...]:
        """Return the names of the agent that did some work."""
        time = part.start if isinstance(part, SlimSpan) else part.time
        return self._names(_conversation(part), _turn(part), time)

    def _names(self, conversation: str | None, turn: str | None, time: int) -> tuple[Name, ...]:
        """Return the names of the agent of a turn, or of a conversation's turn at a time."""
        if turn is not None:
            conversation = self._conversations.get(turn, conversation)
        turns = self._turns.get(conversation, ()) if conversation is not None else ()
        if turn is None and turns:
            turn = turns[max(bisect_right(turns, time, key=lambda each: each[0]) - 1, 0)][1]
        names: tuple[Name, ...] = (("turn", turn),) if turn is not None else ()
        if conversation is not None and (not turns or turns[0][1] == turn):
            names = (("agent", conversation), *names)
        return names

    def _of_agents(self) -> Iterator[Sign | Opening]:
        """Return the names, requests, answers, ends and openers of agents."""
        spawned: dict[bytes | None, str | None] = {}
        """The conversation that a tool call started, by the span id in the call's log records."""
        yield from self._of_turns()
        for record in self._logs:
            attributes = record.attributes
            if record.name == "codex.conversation_starts":
                self._children.add(_conversation(record))
            elif record.name == _MESSAGE and attributes.get("kind") == "result":
                sender = first_text(attributes, ("sender_thread_id",))
                yield from self._of_child(sender, end=record.time)
            elif record.name == _MESSAGE and attributes.get("kind") == "spawn":
                receiver = first_text(attributes, ("receiver_thread_id",))
                spawned[record.span_id] = receiver
                call, _ = self._climb(record.span_id)
                yield from self._of_child(receiver, opener=_call_id(call) if call else None)
                turn = first_text(attributes, ("communication_id",))
                turn = turn if turn in self._conversations else None
                fields = _request(attributes, "content")
                yield Sign(Role.AGENT, self._names(receiver, turn, 0), fields=fields)
        results = [each for each in self._logs if each.name == _RESULT]
        for record in results:
            yield from self._of_output(record, spawned.get(record.span_id))
        for record in results:
            name = first_text(record.attributes, ("agent_name",))
            if name not in (None, _ROOT):
                yield from self._of_child(_conversation(record), fields={"name": name})
        for record in reversed(self._logs):
            if record.name == "codex.user_prompt":
                fields = _request(record.attributes, "prompt")
                yield Sign(Role.AGENT, self._agent(record), fields=fields)
        conversations = {*self._turns}
        conversations |= {_conversation(each) for each in self._logs if each.name in _WORK}
        mains = conversations - self._children
        started = {_turn(span) for span in self._spans if span.name == "turn/start"}
        if len(mains) == 1 and started.isdisjoint(self._conversations):
            yield Sign(Role.AGENT, self._names(mains.pop(), None, 0), is_turn=True)
        for conversation in sorted(filter(None, conversations)):
            facts = SpanFacts(Role.AGENT, name="codex", conversation=conversation)
            for turn in (None, *(turn for _, turn in self._turns.get(conversation, ()))):
                names = self._names(conversation, turn, 0)
                yield Sign(Role.AGENT, names, facts=facts, fields={"conversation": conversation})

    def _of_turns(self) -> Iterator[Sign | Opening]:
        """Return which turn is the main agent's, and which tool calls started the others."""
        for span in self._spans:
            turn = _turn(span)
            if span.name == "turn/start" and turn in self._conversations:
                yield Sign(Role.AGENT, self._names(None, turn, 0), is_turn=True)
            elif turn is not None and (span.facts.role is Role.AGENT or span.name == _INPUT):
                call, _ = self._climb(span.parent_span_id)
                if call is not None and call.facts.role is Role.TOOL:
                    self._children.add(self._conversations.get(turn))
                    yield Opening(("turn", turn), ("call", call.span_id))

    def _of_output(self, record: LogRecord, spawned: str | None) -> Iterator[Sign]:
        """Return what the output of a tool that starts agents, or waits for them, states."""
        output = parsed(record.attributes.get("output"))
        if "agent" not in (first_text(record.attributes, ("tool_name",)) or ""):
            return
        fields = output if isinstance(output, dict) else {}
        name = first_text(fields, ("nickname", "task_name"))
        opened = first_text(fields, ("agent_id",)) or spawned
        yield from self._of_child(opened, opener=_call_id(record), fields={"name": name})
        status = fields.get("status")
        for conversation, ended in status.items() if isinstance(status, dict) else ():
            answer = text(ended.get("completed")) if isinstance(ended, dict) else None
            if answer is not None:
                yield from self._of_child(conversation, end=record.time, fields={"answer": answer})

    def _of_child(self, conversation: str | None, **more: Any) -> Iterator[Sign]:
        """Return a sign of the agent that a tool call started."""
        self._children.add(conversation)
        if conversation is not None:
            yield Sign(Role.AGENT, self._names(conversation, None, 0), **more)

    # --- Model calls -----------------------------------------------------------------------------

    def _model(self, span_id: bytes) -> tuple[Name, ...]:
        """Return the name of the model call that a span is a part of.

        If the call has not arrived, this is the id of the missing span, which other parts share.
        """
        model, missing = self._climb(span_id)
        if model is not None and model.facts.role is Role.MODEL:
            return (("model", model.span_id),)
        return (("model", missing or span_id),)

    def _of_answers(self) -> Iterator[Sign]:
        """Return the ends and the token counts of model calls, from spans."""
        ends: dict[SlimSpan, int] = {}
        self._open: list[SlimSpan] = []
        """The answers whose model call has not arrived."""
        for span in self._spans:
            if span.name == _ANSWER and span.facts.role is Role.WRAPPER:
                model, _ = self._climb(span.span_id)
                if model is None:
                    self._open.append(span)
                elif model.end:  # the tool calls that it chose run longer
                    ends[model] = max(ends.get(model, 0), span.end)
                part = span if model is None else None
                yield self._of_part(span, start=span.start, end=span.end, part=part)
        for model, end in ends.items():
            model.end = end or model.end
        if len(self._open) > _MOST_OPEN:
            self._open = []
        for span in self._spans:
            if counts := _counts(span.attributes, 0):
                model, _ = self._climb(span.span_id)
                if model is not None:
                    yield self._of_part(span, fields=counts)
                elif (answer := self._answer_of(span)) is not None:
                    yield self._of_part(answer, fields=counts, part=span)

    def _answer_of(self, span: SlimSpan) -> SlimSpan | None:
        """Return the only answer whose tokens a span counts, if no id leads to the model call."""
        fitting = [
            each
            for each in self._open
            if each.start <= span.start and span.end <= each.end <= span.end + _SOON
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _of_part(self, span: SlimSpan, **more: Any) -> Sign:
        return Sign(Role.MODEL, self._model(span.span_id), agent=self._agent(span), **more)

    def _of_requests(self) -> Iterator[Sign]:
        """Return the models and failures of requests to the provider, sorted by time.

        A request is a log record and an event of its span. The last one of a model call decides.
        """
        requests: dict[tuple[bytes, Any], tuple[int, Attributes]] = {}
        for record in self._logs:
            if record.name in _REQUESTS and record.span_id is not None:
                key = record.span_id, text(record.attributes.get("attempt"))
                requests.setdefault(key, (record.time, record.attributes))
        for span in self._spans:
            for event in span.events:
                if event.attributes.get("event.name") in _REQUESTS:
                    key = span.span_id, text(event.attributes.get("attempt"))
                    requests.setdefault(key, (event.time, event.attributes))
        found = sorted(
            ((time, span_id, attributes) for (span_id, _), (time, attributes) in requests.items()),
            key=lambda each: each[:2],
        )
        first_ids: dict[tuple[Name, ...], bytes] = {}
        last = {self._model(span_id): at for at, (_, span_id, _) in enumerate(found)}
        for at, (time, span_id, attributes) in enumerate(found):
            conversation, names = first_text(attributes, _CONVERSATIONS), self._model(span_id)
            error = _error(attributes) if last[names] == at else None
            yield Sign(
                Role.MODEL,
                names,
                call_id=("stream", conversation),
                start=max(time - _duration(attributes), 0),
                end=time if error is not None else 0,
                lasting=("request", first_ids.setdefault(names, span_id)),
                agent=self._names(conversation, None, time),
                facts=SpanFacts(Role.MODEL, model=first_text(attributes, ("model",))),
                error=error,
            )

    def _of_stream(self) -> Iterator[Sign]:
        """Return the token counts and errors of streamed answers, which follow each other."""
        answers: dict[str | None, Sign] = {}
        for record in self._stream:
            conversation, counts = _conversation(record), _counts(record.attributes, 1)
            kind = record.attributes.get("event.kind")
            answer = answers.get(conversation)
            if answer is None or kind == "response.created":
                if answer is not None:
                    yield answer
                answer = Sign(
                    *(Role.MODEL, (), ("stream", conversation), 1, record.time), is_extra=True
                )
            if kind == "response.completed" and counts:
                answer = answer._replace(end=record.time, fields=counts, error=None)
            elif not answer.end:
                error = first_text(record.attributes, ("error.message",))
                answer = answer._replace(error=error or answer.error)
            answers[conversation] = answer
        yield from answers.values()

    # --- Tool calls ------------------------------------------------------------------------------

    def _of_call(self, span: SlimSpan) -> Iterator[Sign]:
        """Return what the span of a tool call, or a span inside it, states."""
        sign = Sign(
            Role.TOOL,
            call_id=_call_id(span),
            agent=self._agent(span),
            is_background=True,  # agents work on after the call that started them
        )
        if span.facts.role is Role.TOOL:
            chosen = self._model(span.parent_span_id or b"")[0]
            for answer in self._open if chosen[1] not in self._parts.by_id else ():
                if _turn(answer) == _turn(span) and answer.start <= span.start <= answer.end:
                    chosen = self._model(answer.span_id)[0]
            yield sign._replace(names=(("call", span.span_id),), span=span, round=chosen)
        elif (inside := self._climb(span.span_id)[0]) is None or inside.facts.role is not Role.TOOL:
            yield sign._replace(stage=3, start=span.start, facts=_of_tool(span.attributes))

    def _of_logged_calls(self) -> Iterator[Sign]:
        for record in self._logs:
            is_result = record.name == _RESULT
            if not is_result and record.name != "codex.tool_decision":
                continue
            if (call_id := _call_id(record)) is None:
                continue
            call, _ = self._climb(record.span_id)
            is_known = call is not None and call.facts.role is Role.TOOL
            lasted = _duration(record.attributes) if is_result else 0
            yield Sign(
                Role.TOOL,
                (("call", call.span_id),) if call is not None and is_known else (),
                call_id=call_id,
                stage=2 if is_result else 1,
                time=record.time,
                start=max(record.time - lasted, 0),
                end=record.time if is_result else 0,
                agent=self._agent(record),
                facts=_of_tool(record.attributes),
                fields=_result(record.attributes) if is_result else {},
                is_background=True,
            )


# --- Attributes -----------------------------------------------------------------------------------


def _conversation(part: SlimSpan | LogRecord) -> str | None:
    return first_text(part.attributes, _CONVERSATIONS)


def _turn(part: SlimSpan | LogRecord) -> str | None:
    return first_text(part.attributes, _TURNS)


def _call_id(part: SlimSpan | LogRecord) -> Name | None:
    call_id, conversation = part.attributes.get("call_id"), _conversation(part)
    is_known = isinstance(call_id, str) and conversation is not None
    return ("call", conversation, call_id) if is_known else None


def _is_of_call(span: SlimSpan) -> bool:
    """Return whether a span proves that a tool call exists, if the call's span has not arrived."""
    return "tool_name" in span.attributes and _call_id(span) is not None


def _content(attributes: Attributes, name: str) -> str | None:
    content = first_text(attributes, (name,))
    return content if content != _REDACTED else None


def _request(attributes: Attributes, name: str) -> dict[str, str | None]:
    return dict.fromkeys(("request", "title"), _content(attributes, name))


def _duration(attributes: Attributes) -> int:
    """Return the attribute `duration_ms` in nanoseconds; 0 if it is missing."""
    return (count(attributes.get("duration_ms")) or 0) * 1_000_000


def _error(attributes: Attributes) -> str | None:
    """Return why a request to the provider failed; None if it did not."""
    status = count(attributes.get("http.response.status_code"))
    error = first_text(attributes, ("error.message",))
    return f"HTTP status {status}" if error is None and (status or 0) >= 400 else error


def _counts(attributes: Attributes, signal: int) -> dict[str, int | None]:
    """Return the token counts in a span (`signal` 0) or a log record (1); empty if it has none."""
    if _COUNTS["input_tokens"][signal] not in attributes:
        return {}
    return {field: count(attributes.get(names[signal])) for field, names in _COUNTS.items()}


def _of_tool(attributes: Attributes) -> SpanFacts:
    return SpanFacts(
        Role.TOOL,
        name=_bare_name(first_text(attributes, ("tool_name",))),
        conversation=first_text(attributes, _CONVERSATIONS),
        call_id=first_text(attributes, ("call_id",)),
    )


def _result(attributes: Attributes) -> dict[str, Any]:
    """Return the fields of a tool call from the log record with its result."""
    output = _content(attributes, "output")
    code = _exit_code(output)
    return {
        "name": _bare_name(first_text(attributes, ("tool_name",))),
        "tool_type": "MCP" if first_text(attributes, ("mcp_server",)) else None,
        "arguments": _content(attributes, "arguments"),
        "result": output,
        "has_failed": text(attributes.get("success")) == "false" or code != 0,
        "failure": _message(output or "", code) if code else None,
    }


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
    session=Session(signs),
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
        "input_tokens": _COUNTS["input_tokens"],
        "output_tokens": _COUNTS["output_tokens"],
        "cache_read_tokens": _COUNTS["cache_read_tokens"],
        "cache_written_tokens": _COUNTS["cache_written_tokens"],
        "call_id": ("call_id",),
        "tool_type": ("mcp_server",),
        "arguments": ("arguments",),
        "result": ("output",),
    },
)
