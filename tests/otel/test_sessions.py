"""Signs of a coding agent are joined to records: an invented emitter, Quill Code."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import combinations

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    count,
    first_text,
)
from tracer.otel.dialects.session import Name, Opening, Session, SessionParts, Sign
from tracer.otel.projection.sessions import complete_sessions
from tracer.records.spans import Attributes, LogRecord, ReadableSpan

SCOPE = "quill"
SECOND = 10**9


_ROLES = {"quill.turn": Role.AGENT, "quill.model": Role.MODEL, "quill.tool": Role.TOOL}


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Quill Code; None for any other span."""
    if not span.name.startswith("quill."):
        return None
    role = _ROLES.get(span.name)
    if role is None:
        return WRAPPER
    return SpanFacts(
        role,
        name=_text(span.attributes, "tool"),
        request=_text(span.attributes, "prompt"),
        model=_text(span.attributes, "model"),
        input_tokens=count(span.attributes.get("quill.tokens.in")),
        call_id=_text(span.attributes, "call_id"),
    )


def signs(parts: SessionParts) -> Iterator[Sign | Opening]:
    """Return what the spans and log records of a run state about its work. See `Session`."""
    for span in parts.spans:
        if span.facts.role is not Role.WRAPPER:
            yield from _of_span(span)
    for record in parts.logs:
        if record.name.startswith("agent."):
            yield from _of_agent(record)
        elif record.name.startswith("tool."):
            yield from _of_call(record)


def _of_span(span: SlimSpan) -> Iterable[Sign]:
    kind = {Role.AGENT: "turn_id", Role.MODEL: "request_id", Role.TOOL: "call_id"}
    sign = Sign(
        span.facts.role,
        _names(span.attributes, kind[span.facts.role]),
        span=span,
        agent=_agent(span.attributes),
        round=next(iter(_names(span.attributes, "request_id")), None),
    )
    if span.facts.role is Role.AGENT:
        sign = sign._replace(agent=(), round=None, is_turn=True)
    yield sign


def _of_agent(record: LogRecord) -> Iterable[Sign | Opening]:
    names = _names(record.attributes, "agent_id")
    for call in _names(record.attributes, "call_id"):
        yield Opening(names[0], call)
    is_end = record.name == "agent.finished"
    yield Sign(
        Role.AGENT,
        names,
        start=0 if is_end else record.time,
        end=record.time if is_end else 0,
        fields={"name": _text(record.attributes, "agent_type")},
    )


def _of_call(record: LogRecord) -> Iterable[Sign]:
    is_end = record.name == "tool.finished"
    yield Sign(
        Role.TOOL,
        _names(record.attributes, "call_id"),
        start=0 if is_end else record.time,
        end=record.time if is_end else 0,
        agent=_agent(record.attributes),
        round=next(iter(_names(record.attributes, "request_id")), None),
        fields={
            "name": _text(record.attributes, "tool"),
            "call_id": _text(record.attributes, "call_id"),
            "arguments": _text(record.attributes, "arguments"),
            "result": _text(record.attributes, "result"),
        },
        error=_text(record.attributes, "error"),
        may_open=_text(record.attributes, "tool") == "delegate",
    )


def _agent(attributes: Attributes) -> tuple[Name, ...]:
    """Return the names of the sub-agent that did some work, or else of the turn."""
    return _names(attributes, "agent_id") or _names(attributes, "turn_id")


def _names(attributes: Attributes, kind: str) -> tuple[Name, ...]:
    value = _text(attributes, kind)
    return ((kind.removesuffix("_id"), value),) if value is not None else ()


def _text(attributes: Attributes, name: str) -> str | None:
    return first_text(attributes, (f"quill.{name}",))


QUILL = Dialect(
    "Quill Code",
    order=55,
    read=read,
    scopes=("quill*",),
    session=Session(signs, lambda _: 100 * SECOND),
)


def span(number: int, name: str, parent: int | None, at: tuple[int, int], **ids: str) -> SlimSpan:
    slim = SlimSpan(
        span_id=number.to_bytes(8),
        parent_span_id=None if parent is None else parent.to_bytes(8),
        start=at[0] * SECOND,
        end=at[1] * SECOND,
        name=f"quill.{name}",
        scope=SCOPE,
        status_code=0,
        status_message="",
        attributes={f"quill.{key}": value for key, value in ids.items()},
        events=(),
    )
    assert QUILL.read is not None
    slim.facts = QUILL.read(slim) or slim.facts
    return slim


def event(name: str, at: int, **ids: str) -> LogRecord:
    return LogRecord(
        trace_id=bytes(15) + b"1",
        span_id=None,
        time=at * SECOND,
        name=name,
        body=None,
        attributes={f"quill.{key}": value for key, value in ids.items()},
        resource={},
        scope=SCOPE,
        sent=f"{name} {at} {ids}".encode(),
    )


def turn() -> list[SlimSpan | LogRecord]:
    """Return a turn that starts a sub-agent, whose command is sent by events alone."""
    agent = {"turn_id": "t", "agent_id": "a1"}
    return [
        span(1, "turn", None, (0, 20), turn_id="t", prompt="How high is the tide?"),
        span(2, "model", 1, (1, 2), turn_id="t", request_id="r1"),
        span(3, "tool", 1, (3, 12), turn_id="t", request_id="r1", call_id="c1", tool="delegate"),
        event("agent.started", 4, agent_id="a1", call_id="c1", agent_type="reader"),
        span(4, "model", None, (5, 6), **agent, request_id="r2"),
        event("tool.started", 7, **agent, request_id="r2", call_id="c2", tool="Bash"),
        event("tool.finished", 8, **agent, call_id="c2", tool="Bash", result="4 m"),
        event("agent.finished", 11, agent_id="a1"),
    ]


def outline(parts: list[SlimSpan | LogRecord]) -> list[str]:
    """Return a line for each record: its path of names, its end, and how it was linked."""
    spans = [part for part in parts if isinstance(part, SlimSpan)]
    logs = [part for part in parts if isinstance(part, LogRecord)]
    by_id = {each.span_id: each for each in spans}
    for each in spans:
        each.parent = by_id.get(each.parent_span_id or b"")
        each.missing_parent = each.parent_span_id if each.parent is None else None
    completed = complete_sessions(
        sorted(spans, key=lambda each: each.order),
        sorted(logs, key=lambda each: each.order),
        [QUILL],
    )
    lines = []
    for each in completed:
        if each.facts.role is not Role.WRAPPER:
            path = [each]
            while path[0].parent is not None:
                path.insert(0, path[0].parent)
            names = [f"{at.facts.name or at.facts.role}" for at in path]
            ended = f"ends at {each.end // SECOND}" if each.end else "is open"
            lines.append(f"{'/'.join(names)} {ended}{' (inferred)' if each.inferred else ''}")
    return lines


WHOLE = [
    "agent ends at 20",
    "agent/model ends at 2",
    "agent/model/delegate ends at 12",
    "agent/model/delegate/reader ends at 12",
    "agent/model/delegate/reader/model ends at 6",
    "agent/model/delegate/reader/model/Bash ends at 8",
]


def test_parts_of_a_turn_are_joined_by_names() -> None:
    assert outline(turn()) == WHOLE


def test_order_of_parts_does_not_change_the_records() -> None:
    chance = random.Random(0)
    for _ in range(20):
        parts = turn()
        chance.shuffle(parts)
        assert outline([*parts, *(part for part in turn() if isinstance(part, LogRecord))]) == WHOLE


def test_running_call_waits_for_the_round_that_chose_it() -> None:
    open_call = [
        part for part in turn() if not isinstance(part, LogRecord) or part.time < 8 * SECOND
    ]
    without_round = [part for part in open_call if getattr(part, "start", 0) != 5 * SECOND]

    assert "agent/model/delegate/reader/model/Bash is open" in outline(open_call)
    assert "agent/model/delegate/reader/Bash is open" in outline(without_round)


def test_parts_that_are_missing_give_no_wrong_parent() -> None:
    whole = [line.partition(" ")[0].split("/") for line in WHOLE]
    for left_out in combinations(range(len(turn())), 2):
        for line in outline([part for number, part in enumerate(turn()) if number not in left_out]):
            path = line.partition(" ")[0].split("/")
            assert any(is_part_of(path, each) for each in whole), (left_out, line)


def is_part_of(path: list[str], whole: list[str]) -> bool:
    """Return whether a path is another one without some of its levels. Agents may lack a name."""
    left = iter(whole[:-1])
    above = all(any(name in (each, "agent") for each in left) for name in path[:-1])
    return above and path[-1] in (whole[-1], "agent")


def delegated(*calls: int) -> list[SlimSpan | LogRecord]:
    """Return a turn with open calls that delegate, from given seconds, and one agent at 10."""
    return [
        span(1, "turn", None, (0, 0), turn_id="t"),
        *(
            event("tool.started", at, turn_id="t", call_id=f"c{at}", tool="delegate")
            for at in calls
        ),
        event("agent.started", 10, agent_id="a1", agent_type="reader"),
    ]


def test_agent_is_linked_to_the_only_call_that_can_have_started_it() -> None:
    assert outline(delegated(3))[-1] == "agent/delegate/reader is open (inferred)"
    assert outline(delegated(3, 12))[-2] == "agent/delegate/reader is open (inferred)"


def test_agent_is_not_linked_if_two_calls_can_have_started_it() -> None:
    assert outline(delegated(3, 4))[-1] == "reader is open"
