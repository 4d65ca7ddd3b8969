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
from collections.abc import Iterable, Iterator
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
)
from tracer.otel.dialects.genai import ARGUMENTS, INPUT_TOKENS, OUTPUT_TOKENS, RESULTS
from tracer.otel.dialects.session import Name, Opening, Session, SessionParts, Sign
from tracer.records.arguments import parsed
from tracer.records.prices import usd
from tracer.records.spans import STATUS_ERROR, Attributes, LogRecord, ReadableSpan

SCOPE = "com.anthropic.claude_code"
"""The prefix of the names of Claude Code's instrumentation scopes."""

_PREFIX = "claude_code."
_INTERACTION, _REQUEST = "claude_code.interaction", "claude_code.llm_request"
_TOOL, _EXECUTION = "claude_code.tool", "claude_code.tool.execution"
_WAIT = "claude_code.tool.blocked_on_user"
_CONVERSATIONS = ("session.id", "session_id")
_CALL_IDS = ("tool_use_id", "gen_ai.tool.call.id")
_PROVIDERS = ("gen_ai.provider.name", "gen_ai.system")
_REDACTED = "<REDACTED>"
_OPENERS = frozenset((None, "Agent", "Task", "Skill", "SendMessage"))
"""Tools that can start or continue a sub-agent. None: the tool's name has not arrived, so that the
call may be of any tool."""

_MOST_OF_TITLE = 300
_MILLISECOND = 1_000_000
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
            name = first_text(attributes, ("agent_name", "agent_id"))
            return _interaction(name, conversation, attributes)
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


def _interaction(name: str | None, conversation: str | None, attributes: Attributes) -> SpanFacts:
    """Return the role and fields of the main agent that answers one prompt.

    Claude Code itself writes a prompt when a background agent or command has ended. It is no
    question of the user. Its summary is the title.
    """
    prompt = _text(first(attributes, ("user_prompt", "prompt")))
    facts = SpanFacts(
        Role.AGENT,
        name=name or "claude_code",
        conversation=conversation,
        request=prompt,
        title=prompt,
        # A prompt of known text states itself what it follows.
        sequence=count(attributes.get("event.sequence")) if prompt is None else None,
        number=count(attributes.get("interaction.sequence")),
    )
    if prompt is None:
        return facts
    if prompt.startswith(_NOTIFICATION):
        facts = facts._replace(
            request=None,
            title=_tagged(prompt, "summary"),
            follows_call_id=_tagged(prompt, "tool-use-id"),
            follows_agent=_tagged(prompt, "task-id"),
        )
    if facts.title is not None and len(facts.title) > _MOST_OF_TITLE:
        facts = facts._replace(title=facts.title[: _MOST_OF_TITLE - 1] + "…")
    return facts


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
    first_token = _number(attributes.get("ttft_ms"))
    return SpanFacts(
        Role.MODEL,
        conversation=conversation,
        requested_model=requested,
        # A suffix such as `[1m]` is the program's own: it chooses the size of the context.
        model=re.sub(r"\[\w+\]$", "", requested) if requested else None,
        provider=first_text(attributes, _PROVIDERS),
        answer=_text(attributes.get("response.model_output")),
        finish_reasons=(reason,) if (reason := _text(attributes.get("stop_reason"))) else (),
        first_token_seconds=first_token / 1000 if first_token is not None else None,
        cost_usd=usd(first(attributes, ("cost_usd",))),
        input_tokens=whole if fresh is None else fresh + cached + written,
        output_tokens=count(first(attributes, ("output_tokens", *OUTPUT_TOKENS))),
        cache_read_tokens=cached,
        cache_written_tokens=written,
        cache_written_hour_tokens=count(attributes.get("cache_creation_1h_tokens")),
    )


def _arguments(attributes: Attributes) -> str | None:
    """Return the arguments of a tool call, from the attributes of its span.

    If Claude Code is not configured to export them, only a command or a file path is available.
    """
    whole = _whole_arguments(attributes)
    if whole is not None:
        return whole
    if command := _text(attributes.get("full_command")):
        return _json({"command": command})
    if path := _text(attributes.get("file_path")):
        return _json({"file_path": path})
    return None


def _whole_arguments(attributes: Attributes) -> str | None:
    whole = first_text(attributes, ("tool_input", *ARGUMENTS))
    return _without_heading(whole) if whole is not None else None


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


# --- Signs of work -------------------------------------------------------------------------------


def signs(parts: SessionParts) -> Iterable[Sign | Opening]:
    """Return what the spans and log events of a run state about its work. See `Session`."""
    return _Reader(parts).signs()


class _Reader:
    """Reads the signs of one run.

    A *place* is the id of a span below which one turn or sub-agent works: of an `interaction`, or
    of the `.execution` of a tool call that set a sub-agent to work. Claude Code 2.1.197 names
    agents in its spans only, and the place of each log event.
    """

    def __init__(self, parts: SessionParts) -> None:
        self._parts, self._by_id = parts, parts.by_id
        self._spans = [span for span in parts.spans if span.name.startswith(_PREFIX)]
        self._events: dict[str, list[LogRecord]] = {}
        """The log events by name, sorted."""
        for record in parts.logs:
            self._events.setdefault(record.name.removeprefix(_PREFIX), []).append(record)
        for records in self._events.values():
            records.sort(key=lambda each: (each.time, _sequence(each) or 0, each.sent))
        self._requests = {
            request_id for span in self._spans if (request_id := _request_id(span)) is not None
        }
        self._has_requests = any(span.name == _REQUEST for span in self._spans)
        self._waits = {
            span.span_id: span.parent_span_id for span in self._spans if span.name == _WAIT
        }
        self._turns = self._find_turns()
        self._prompts = {
            _text(record.attributes.get("prompt.id")) for record in self._of_events("user_prompt")
        }

    def _of_events(self, *names: str) -> Iterator[LogRecord]:
        return (record for name in names for record in self._events.get(name, ()))

    def _find_turns(self) -> set[bytes]:
        turns = {span.span_id for span in self._spans if span.name == _INTERACTION}
        turns.update(each.span_id for each in self._of_events("user_prompt") if each.span_id)
        for span in self._spans:
            if _is_of_main(span) and (place := self._place(span.parent_span_id)) is not None:
                turns.add(place)
        for record in self._of_events("tool_result"):
            # Since 2.1.332, an event without `agent_id` is of the main agent.
            if _request_id(record) and not _agent_id(record) and record.span_id:
                turns.add(record.span_id)
        for span in self._spans:
            if span.name != _INTERACTION:
                turns.discard(span.span_id)
                if span.name in (_EXECUTION, _WAIT):
                    turns.discard(span.parent_span_id or b"")
        return turns

    def signs(self) -> Iterator[Sign | Opening]:
        yield from self._of_turns()
        for span in self._spans:
            if span.name == _REQUEST:
                yield self._of_request(span)
        yield from self._of_logged_requests()
        yield from self._of_decisions()
        for name in (_WAIT, _EXECUTION, _TOOL):
            for span in self._spans:
                if span.name == name:
                    yield from self._of_call(span)
        yield from self._of_results()
        yield from self._of_agents()

    # --- Turns and agents ------------------------------------------------------------------------

    def _of_turns(self) -> Iterator[Sign]:
        """Return the signs of prompts, each of which starts a turn of the main agent."""
        begin, session = self._earliest()
        for record in reversed([*self._of_events("user_prompt")]):
            if record.span_id is not None:
                prompt_id = _text(record.attributes.get("prompt.id"))
                names = (("at", record.span_id), ("prompt", prompt_id or record.span_id))
                facts = _interaction(None, _session_of(record), record.attributes)
                yield self._of_turn(record.span_id, names, record.time, facts)
        for span in self._spans:
            if span.name == _INTERACTION:
                turn = self._of_turn(span.span_id, (("at", span.span_id),), 0, span.facts)
                yield turn._replace(span=span)
        for place in sorted(self._turns):
            facts = _interaction(None, session, {})
            # If it is the only turn, it began before all that has arrived.
            start = begin if len(self._turns) == 1 and place not in self._by_id else 0
            yield Sign(
                Role.AGENT, (("at", place),), span_id=place, start=start, is_turn=True, facts=facts
            )
        if not self._turns and begin:
            facts = _interaction(None, session, {})
            yield Sign(Role.AGENT, (("session", session),), start=begin, is_turn=True, facts=facts)

    def _of_turn(self, place: bytes, names: tuple[Name, ...], time: int, facts: SpanFacts) -> Sign:
        sequences = {"sequence": facts.sequence, "number": facts.number}
        texts = {"title": facts.title, "request": facts.request}
        follows = {"follows_call_id": facts.follows_call_id, "follows_agent": facts.follows_agent}
        followed = facts.follows_call_id
        return Sign(
            Role.AGENT,
            names,
            start=time,
            span_id=place,
            follows=("call", followed) if followed is not None and len(self._turns) > 1 else None,
            facts=facts,
            fields={**sequences, **texts, **follows},
            is_turn=True,
        )

    def _earliest(self) -> tuple[int, str | None]:
        """Return a time before all parts with a trace, and the session of the earliest one."""
        candidates = [
            *((span.start, span.facts.conversation) for span in self._spans),
            *(
                (each.time, _session_of(each))
                for each in self._of_events(*self._events)
                if any(each.trace_id)
            ),
        ]
        start, session = min(
            candidates, key=lambda each: (each[0], each[1] or ""), default=(0, None)
        )
        return max(start - 1, 0), session

    def _of_agents(self) -> Iterator[Sign]:
        named = dict.fromkeys(
            (
                self._agent(each, each.span_id),
                each.span_id,
                _text(each.attributes.get("agent.name")),
            )
            for each in self._of_events("api_request")
        )
        for agent, below, name in named:
            if agent:
                yield Sign(Role.AGENT, agent, below=below, fields={"name": name})
        for record in self._of_events("subagent_completed"):
            is_async = record.attributes.get("is_async") is True
            if agent := self._agent(record, record.span_id):
                yield Sign(
                    Role.AGENT,
                    agent,
                    end=record.time,
                    below=record.span_id,
                    is_background=is_async,
                    fields={
                        "name": _text(record.attributes.get("agent_type")),
                        "sequence": _sequence(record) if is_async else None,
                    },
                )
        working = dict.fromkeys(
            (
                agent_id,
                _text(span.attributes.get("parent_agent_id")),
                self._place(span.parent_span_id),
                span.facts.conversation,
            )
            for span in self._spans
            if span.name in (_REQUEST, _TOOL) and (agent_id := _agent_id(span)) is not None
        )
        for agent_id, parent_id, place, conversation in working:
            yield Sign(
                Role.AGENT,
                (("agent", agent_id),),
                below=place,
                above=("agent", parent_id) if parent_id is not None else self._only_turn(),
                facts=SpanFacts(Role.AGENT, name=agent_id, conversation=conversation),
            )

    def _only_turn(self) -> Name | None:
        return ("at", next(iter(self._turns))) if len(self._turns) == 1 else None

    def _place(self, span_id: bytes | None) -> bytes | None:
        """Return the place that a span is below. Spans of unknown kinds are passed."""
        place, missing = self._parts.climb(
            span_id,
            lambda each: each.name in (_INTERACTION, _EXECUTION, _TOOL) or not each.parent_span_id,
        )
        return place.span_id if place is not None else missing

    def _call_at(self, place: bytes | None) -> bytes | None:
        """Return the id of the `tool` span of the call that a place belongs to; None for a turn."""
        span = self._by_id.get(place or b"")
        if span is None or span.name == _INTERACTION:
            return None
        return span.parent_span_id if span.name == _EXECUTION else span.span_id

    def _agent(self, part: SlimSpan | LogRecord, span_id: bytes | None) -> tuple[Name, ...]:
        """Return the names of the agent that did some work; none if they are unknown.

        Args:
            part: The span or the log event of the work.
            span_id: The id of the span that the work is below.
        """
        agent_id, place = _agent_id(part), self._place(span_id)
        if place is None or place in self._turns:
            return (
                (("agent", agent_id),)
                if agent_id is not None
                else (("at", place),)
                if place
                else ()
            )
        tool = self._by_id.get(self._call_at(place) or b"")
        if agent_id is None:
            is_of_agent = isinstance(part, LogRecord) and (
                part.name.removeprefix(_PREFIX) in ("tool_result", "subagent_completed")
                or (_text(part.attributes.get("query_source")) or "").startswith("agent:")
            )
            return (("at", place),) if is_of_agent else ()
        if tool is not None and _agent_id(tool) == agent_id:
            # A tool did this work, for the agent that called the tool.
            return () if isinstance(part, SlimSpan) else (("agent", agent_id),)
        return ("agent", agent_id), ("at", place)

    # --- Model calls -----------------------------------------------------------------------------

    def _of_request(self, span: SlimSpan) -> Sign:
        request_id = _request_id(span)
        names: tuple[Name, ...] = (("span", span.span_id),)
        if request_id is not None:
            names = (*names, ("request", request_id))
        has_failed = span.attributes.get("success") is False
        return Sign(
            Role.MODEL,
            names,
            call_id=self._counts(span, span.parent_span_id) if request_id is None else None,
            span=span,
            agent=self._agent(span, span.parent_span_id),
            error=(_text(span.attributes.get("error")) or "") if has_failed else None,
            is_last=_is_last(span.attributes),
        )

    def _of_logged_requests(self) -> Iterator[Sign]:
        """Return the costs, errors, answers and requested calls of model calls, from log events."""
        for record in self._of_events("api_request", "api_error", "assistant_response"):
            attributes, request_id = record.attributes, _request_id(record)
            is_answer = record.name.endswith("assistant_response")
            is_error = record.name.endswith("api_error")
            if is_answer and request_id is None:
                continue
            # An error does not always name the request of its span: it may be one of several tries.
            has_span = request_id in self._requests
            if is_error and self._has_requests and not has_span:
                continue
            cost = usd(attributes.get("cost_usd"))
            yield Sign(
                Role.MODEL,
                (("request", request_id),) if request_id is not None else (),
                call_id=self._counts(record, record.span_id) if request_id is None else None,
                stage=1,
                start=0 if is_answer else _start_of(record),
                time=record.time if is_answer else 0,
                end=0 if is_answer else record.time,
                below=record.span_id,
                agent=self._agent(record, record.span_id),
                facts=None if is_answer or has_span else _model(attributes, _session_of(record)),
                fields={"cost_usd": cost, "answer": _text(attributes.get("response"))},
                error=_text(attributes.get("error")) or "" if is_error else None,
                is_last=not is_answer and _is_last(attributes),
            )
        for record in self._of_events("api_response_body"):
            request_id, chosen = _request_id(record), _chosen_in(record)
            if request_id is None:
                continue
            yield Sign(
                Role.MODEL,
                (("request", request_id),),
                time=record.time,
                below=record.span_id,
                agent=self._agent(record, record.span_id),
                fields={"chosen": chosen or None},
            )

    def _counts(self, part: SlimSpan | LogRecord, below: bytes | None) -> Name:
        """Return what a model call and its log events have in common if they name no request."""
        names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
        return "counts", below, *(count(part.attributes.get(name)) for name in names)

    # --- Tool calls ------------------------------------------------------------------------------

    def _of_call(self, span: SlimSpan) -> Iterator[Sign | Opening]:
        """Return what one of the three spans of a tool call states."""
        attributes = span.attributes
        tool_id = span.span_id if span.name == _TOOL else span.parent_span_id
        if tool_id is None or (tool_id in self._by_id and self._by_id[tool_id].name != _TOOL):
            return
        call_id = _call_id(span)
        sign = Sign(
            Role.TOOL,
            (("tool", tool_id),),
            call_id=call_id,
            start=span.start,
            span_id=tool_id,
            fields={"name": _tool_name(span), "call_id": call_id[1] if call_id else None},
            opened={"name": _text(attributes.get("subagent_type"))},
            facts=SpanFacts(Role.TOOL, conversation=span.facts.conversation),
        )
        if span.name == _WAIT:
            is_denied = attributes.get("decision") == "reject"
            conversation = _text(attributes.get("gen_ai.conversation.id"))
            agent: tuple[Name, ...] = ()
            if conversation is not None and conversation != first_text(attributes, _CONVERSATIONS):
                agent = (("agent", conversation),)
            elif conversation is not None and (turn := self._only_turn()):
                agent = (turn,)
            yield sign._replace(
                agent=agent,
                stage=1,
                end=span.end if is_denied else 0,
                fields={**sign.fields, "is_denied": is_denied or None},
            )
        elif span.name == _EXECUTION:
            yield Opening(("at", span.span_id), ("tool", tool_id))
            has_failed = span.status_code == STATUS_ERROR or attributes.get("success") is False
            error = first_text(attributes, ("error",)) or span.status_message
            yield sign._replace(
                end=span.end,
                error=error or _text(attributes.get("error_type")) or "" if has_failed else None,
            )
        else:
            yield Opening(("at", span.span_id), ("tool", tool_id))
            yield sign._replace(
                span=span,
                agent=self._agent(span, span.parent_span_id),
                fields={**sign.fields, "arguments": _whole_arguments(attributes)},
            )

    def _of_decisions(self) -> Iterator[Sign]:
        for record in self._of_events("tool_decision"):
            tool_id = self._waits.get(record.span_id or b"")
            is_denied = record.attributes.get("decision") == "reject"
            agent: tuple[Name, ...] = ()
            if (agent_id := _agent_id(record)) is not None:
                agent = (("agent", agent_id),)
            elif _request_id(record) is not None:
                prompt_id = _text(record.attributes.get("prompt.id"))
                agent = (("prompt", prompt_id),) if prompt_id in self._prompts else ()
                if not agent and (turn := self._only_turn()):
                    agent = (turn,)
            sign = self._of_logged_call(record)
            yield sign._replace(
                names=(("tool", tool_id),) if tool_id is not None else (),
                stage=1,
                start=record.time,
                agent=agent,
                fields={
                    **sign.fields,
                    "arguments": _parameters(record),
                    "is_denied": is_denied or None,
                },
                may_open=sign.may_open and not is_denied,
            )

    def _of_results(self) -> Iterator[Sign]:
        for record in sorted(self._of_events("tool_result"), key=_start_of):
            attributes, start = record.attributes, _start_of(record)
            arguments = _text(attributes.get("tool_input"))
            values = _object(arguments)
            has_failed = attributes.get("success") in ("false", False)
            error = first_text(attributes, ("error", "error_type")) or ""
            sign = self._of_logged_call(record)
            if sign.call_id is None:
                continue
            yield sign._replace(
                stage=2,
                time=start + _MILLISECOND,
                start=start,
                end=record.time,
                agent=self._agent(record, record.span_id),
                below=record.span_id,
                fields={**sign.fields, "arguments": arguments or _parameters(record)},
                opened={**sign.opened, "request": _text(first(values, ("prompt", "message")))},
                error=error if has_failed else None,
                is_background=values.get("run_in_background") is True,
            )

    def _of_logged_call(self, record: LogRecord) -> Sign:
        name, call_id = _text(record.attributes.get("tool_name")), _call_id(record)
        for text in (record.attributes.get("tool_input"), record.attributes.get("tool_parameters")):
            agent_type = _text(_object(text).get("subagent_type"))
            if agent_type is not None:
                break
        request_id = _request_id(record)
        return Sign(
            Role.TOOL,
            call_id=call_id,
            round=("request", request_id) if request_id is not None else None,
            facts=SpanFacts(Role.TOOL, conversation=_session_of(record)),
            fields={"name": name, "call_id": call_id[1] if call_id else None},
            opened={"name": agent_type},
            may_open=name in _OPENERS,
        )


def complete_until(parts: SessionParts) -> int:
    """Return the time until which no log event of a run is missing; -1 if that is unknown.

    Claude Code numbers the events of a session without gaps. After a gap, the event of a tool call
    may be missing.
    """
    sessions = {_session_of(record) for record in parts.logs}
    numbered = sorted(
        ((number, each) for each in parts.logs if (number := _sequence(each)) is not None),
        key=lambda each: (each[0], each[1].sent),
    )
    prompts = [number for number, each in numbered if _is_event(each, "user_prompt")]
    until = -1
    if len(sessions) == 1 and prompts:
        expected = prompts[0]
        for number, record in numbered:
            if number > expected:
                break
            if number == expected:
                expected += 1
                until = max(until, record.time)
    return until


def _chosen_in(record: LogRecord) -> tuple[RequestedCall, ...]:
    """Return the tool calls that a model's answer requests, from its raw body."""
    content = _object(record.attributes.get("body")).get("content")
    return tuple(
        RequestedCall(_text(each.get("id")), _text(each.get("name")), _json(each.get("input")))
        for each in (content if isinstance(content, list) else ())
        if isinstance(each, dict) and each.get("type") == "tool_use"
    )


def _parameters(record: LogRecord) -> str | None:
    """Return the arguments of a command, as far as the event of a tool call contains them."""
    parameters = _object(record.attributes.get("tool_parameters"))
    command = parameters.pop("full_command", None)
    parameters.pop("bash_command", None)
    return _json({"command": command, **parameters}) if isinstance(command, str) else None


def _is_event(record: LogRecord, name: str) -> bool:
    return record.name.removeprefix(_PREFIX) == name


def _sequence(record: LogRecord) -> int | None:
    return count(record.attributes.get("event.sequence"))


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


def _session_of(record: LogRecord) -> str | None:
    return first_text(record.attributes, _CONVERSATIONS)


def _agent_id(part: SlimSpan | LogRecord) -> str | None:
    return _text(part.attributes.get("agent_id"))


def _request_id(part: SlimSpan | LogRecord) -> str | None:
    return _text(part.attributes.get("request_id"))


def _call_id(part: SlimSpan | LogRecord) -> Name | None:
    call_id = _text(first(part.attributes, _CALL_IDS))
    return ("call", call_id) if call_id is not None else None


def _tool_name(span: SlimSpan) -> str | None:
    return _text(first(span.attributes, ("tool_name", "gen_ai.tool.name")))


def _is_of_main(span: SlimSpan) -> bool:
    """Return whether the main agent made a model call or tool call, according to its attributes."""
    if _agent_id(span) is not None:
        return False
    return span.name == _TOOL or (
        span.name == _REQUEST and span.attributes.get("llm_request.context") == "interaction"
    )


def _is_last(attributes: Attributes) -> bool:
    """Return whether the stop reason of a model call means that its agent has finished."""
    reason = attributes.get("stop_reason")
    return isinstance(reason, str) and reason not in ("", "tool_use", "pause_turn")


DIALECT = Dialect(
    "Claude Code",
    order=40,
    read=read,
    scopes=(SCOPE + "*",),
    session=Session(signs, complete_until),
    sessions={SCOPE: "session.id"},
    reads={
        "role": ("query_source", "llm_request.context"),
        "links": tuple(
            "agent_id parent_agent_id request_id prompt.id event.sequence is_async query_source"
            " llm_request.context gen_ai.conversation.id".split()
        ),
        "sequence": ("event.sequence",),
        "number": ("interaction.sequence",),
        "times": ("duration_ms",),
        "first_token_seconds": ("ttft_ms",),
        "provider": _PROVIDERS,
        "status": ("success", "error", "error_type", "decision"),
        "name": (
            "agent_name",
            "agent_id",
            "agent.name",
            "agent_type",
            "subagent_type",
            "tool_name",
        ),
        "conversation": _CONVERSATIONS,
        "request": ("user_prompt", "prompt", "new_context"),
        "answer": ("response.model_output", "response", "body"),
        "chosen": ("body",),
        "requested_model": ("model", "gen_ai.request.model"),
        "input_tokens": ("input_tokens", *INPUT_TOKENS),
        "output_tokens": ("output_tokens", *OUTPUT_TOKENS),
        "cache_read_tokens": ("cache_read_tokens",),
        "cache_written_tokens": ("cache_creation_tokens",),
        "cache_written_hour_tokens": ("cache_creation_1h_tokens",),
        "cost_usd": ("cost_usd",),
        "finish_reasons": ("stop_reason",),
        "call_id": _CALL_IDS,
        "arguments": ("tool_input", "tool_parameters", "full_command", "file_path", *ARGUMENTS),
        "result": ("tool_output", "new_context", "output", "content", *RESULTS),
        "tool_type": ("gen_ai.tool.name",),
    },
)
