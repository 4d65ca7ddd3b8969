"""Link tool calls across agents and runs: by a provider's call id, and by calls of an answer alone.

Providers number calls in their own ways, and local models number them per conversation, so an id
alone proves little. Agents are linked only if exactly one pair of spans can be meant.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from tracer.otel.dialects.dialect import RequestedCall, Role, SlimSpan, SpanFacts
from tracer.otel.projection.agents import BY_TEXT, Agents, AgentWork, is_within_tool
from tracer.otel.projection.forest import ending_of
from tracer.records import Status
from tracer.records.arguments import Texts, parsed, same_arguments, strings_in

# --- Spans below the wrong agent.
#
# Some emitters attach the tool calls or the rounds of a sub-agent to the root agent. The id of a
# call shows which agent a span belongs to, if exactly one round chose the id and exactly one tool
# span carries it. An id outranks a parent. Evidence that contradicts prevents the link.

_CALLING = frozenset("tool_calls tool_call tool_use tool-calls function_call".split())
"""Finish reasons of an answer that requests tool calls."""


def correct_by_call_ids(agents: Agents) -> bool:
    """Move tool calls and rounds to the agents that their call ids prove.

    Args:
        agents: The agents of the run. `above` of moved spans changes; the agents must then be found
            again.

    Returns:
        Whether any span was moved.
    """
    chosen: dict[str, list[tuple[SlimSpan, RequestedCall]]] = {}
    carried: dict[str, list[SlimSpan]] = {}
    for span in agents.of:
        facts = span.facts
        if facts.role is Role.TOOL:
            if facts.call_id:
                carried.setdefault(facts.call_id, []).append(span)
        elif not is_within_tool(span):
            for requested in facts.chosen:
                if requested.call_id:
                    chosen.setdefault(requested.call_id, []).append((span, requested))
    moved: dict[SlimSpan, AgentWork] = {}
    is_known: dict[AgentWork | None, bool] = {}
    for call_id, calls in carried.items():
        choices = chosen.get(call_id, ())
        if len(calls) != 1 or len(choices) != 1:
            continue
        [call], [(model, requested)] = calls, choices
        chooser, holder = agents.of[model], agents.of[call]
        if chooser is None or chooser is holder or not _is_same_call(call, requested):
            continue
        if holder not in is_known:
            is_known[holder] = all(map(_are_choices_known, _rounds(agents, holder)))
        if not is_known[holder] or call.start < model.start:
            continue
        if holder is not None and _is_below(agents, holder, chooser) and _is_during(model, holder):
            if _may_belong(model, holder):
                moved[model] = holder
        elif _may_belong(call, chooser) and not _has_opened(agents, call, chooser):
            moved[call] = chooser
    certain = {
        span: agent
        for span, agent in moved.items()
        if span.facts.role is Role.TOOL or _agree(span, agent, carried, agents)
    }
    for span, agent in certain.items():
        span.above, span.awaits = agent.span, None if agent.span is not None else agent.span_id
    return bool(certain)


def _is_same_call(call: SlimSpan, requested: RequestedCall) -> bool:
    facts = call.facts
    if facts.name is None or facts.name != requested.name:
        return False
    if facts.arguments is None or requested.arguments is None:
        return True
    # A bare value: some emitters leave out the name of a tool's only parameter.
    is_bare = strings_in(requested.arguments) == {facts.arguments.strip()}
    return is_bare or same_arguments(facts.arguments, requested.arguments)


def _rounds(agents: Agents, agent: AgentWork | None) -> Iterable[SlimSpan]:
    spans = agents.loose if agent is None else agent.rounds
    return (span for span in spans if span.facts.role is Role.MODEL)


def _are_choices_known(model: SlimSpan) -> bool:
    """Return whether a round shows which calls it chose, or that it chose none."""
    facts = model.facts
    if facts.chosen:
        return True
    if not model.end:
        return False
    if ending_of(model, None, facts.has_failed).status is not Status.SUCCEEDED:
        return True
    return bool(facts.answer) and _CALLING.isdisjoint(facts.finish_reasons)


def _may_belong(span: SlimSpan, agent: AgentWork) -> bool:
    """Return whether the name of a span's agent and the time permit that it is the agent's work."""
    named = span.facts.agent
    return (named is None or agent.name in (None, named)) and _is_during(span, agent)


def _is_during(span: SlimSpan, agent: AgentWork) -> bool:
    start, end = agent.interval
    return start <= span.start and (agent.span is None or span.start <= (end or inf))


def _is_below(agents: Agents, agent: AgentWork, above: AgentWork) -> bool:
    return any(each is above for each in _all_above(agents, agent))


def _all_above(agents: Agents, agent: AgentWork) -> Iterator[AgentWork]:
    passed = {agent}
    at = agents.above(agent)
    while at is not None and at not in passed:
        passed.add(at)
        yield at
        at = agents.above(at)


def _has_opened(agents: Agents, call: SlimSpan, agent: AgentWork) -> bool:
    """Return whether a tool call opened an agent, or an agent above it."""
    return any(each.call is call for each in (agent, *_all_above(agents, agent)))


def _agree(
    model: SlimSpan, agent: AgentWork, carried: dict[str, list[SlimSpan]], agents: Agents
) -> bool:
    """Return whether all calls of a round that were executed belong to one agent."""
    calls = [
        call
        for requested in model.facts.chosen
        for call in carried.get(requested.call_id or "", ())
        if _is_same_call(call, requested)
    ]
    return all(agents.of[call] is agent for call in calls)


# --- Calls that exist only in a model's answer.
#
# Some frameworks run a sub-agent for a requested call without a span of the call. Such a call was
# running from the answer to the agent's next round. If exactly one of them can have opened an
# agent, it becomes a record.

BY_NAME = "the call has the agent's name, and the agent's first message contains its argument"
"""The evidence if a call that exists only in an answer opened an agent under its own name."""

ONLY_CHOSEN = "the model's answer, because the call has no span"
"""The evidence for the record of a call without a span."""


class _ChosenCall(NamedTuple):
    """A call that a model's answer requests, and that no span executed."""

    agent: AgentWork
    model: SlimSpan
    number: int
    requested: RequestedCall
    end: float
    """When the agent's next round began."""


def link_to_answers(agents: Agents) -> list[tuple[SlimSpan, SlimSpan]]:
    """Link agents to the calls that opened them, if these calls exist only in a model's answer.

    Args:
        agents: The agents of the run. Links, and a span for each such call, are stored in them.

    Returns:
        The new span of each call, and the span of its round.
    """
    answered = [
        model.end
        for agent in agents.by_id.values()
        for model in agent.rounds
        if model.facts.chosen and model.end
    ]
    if not answered:
        return []
    earliest = min(answered)
    lost = [
        agent
        for agent in agents.by_id.values()
        if agent.span is not None
        and agent.start >= earliest
        and agent.call is None
        and not agent.span.facts.is_placed
        and agent.request
    ]
    if not lost:
        return []
    texts = Texts()
    by_text: dict[str, list[_ChosenCall]] = {}
    by_name: dict[str, list[_ChosenCall]] = {}
    requests = {agent: (agent.request or "").strip() for agent in lost}
    wanted, names = set(requests.values()), {agent.name for agent in lost}
    first = min(agent.start for agent in lost)
    last = max(agent.start for agent in lost)
    for call in _calls_without_span(agents, first, last):
        for text in texts[call.requested.arguments] & wanted:
            by_text.setdefault(text, []).append(call)
        if call.requested.name in names:
            by_name.setdefault(call.requested.name or "", []).append(call)
    if not by_text and not by_name:
        return []
    found: dict[tuple[SlimSpan, int], list[tuple[AgentWork, _ChosenCall, str]]] = {}
    for agent in lost:
        request = requests[agent]
        equal = [call for call in by_text.get(request, ()) if _may_open(agents, call, agent)]
        named = [
            call
            for call in by_name.get(agent.name or "", ())
            if any(text in request for text in texts[call.requested.arguments])
            and _may_open(agents, call, agent)
        ]
        candidates = equal or named
        if len(candidates) == 1 and not _has_span(agents, agent, request, texts):
            [call] = candidates
            key = call.model, call.number
            found.setdefault(key, []).append((agent, call, BY_TEXT if equal else BY_NAME))
    made = []
    for pairs in found.values():
        if len(pairs) != 1:
            continue
        [(agent, call, evidence)] = pairs
        span = _span_of(call, agent)
        agent.inferred, agent.evidence = span, evidence
        agents.of[span] = call.agent
        insort(call.agent.calls, span, key=lambda each: each.order)
        made.append((span, call.model))
    return made


def _calls_without_span(agents: Agents, first: int, last: int) -> Iterator[_ChosenCall]:
    """Yield the requested calls that no span executed, and that were running at some time.

    A call counts as executed if its agent has a span of a tool with its name until the next round,
    or if any span of the run carries its id and name.
    """
    carried = {
        (span.facts.call_id, span.facts.name)
        for span in agents.of
        if span.facts.role is Role.TOOL and span.facts.call_id
    }
    for agent in agents.by_id.values():
        rounds = [span for span in agent.rounds if not is_within_tool(span)]
        starts = [span.start for span in rounds]
        for model in rounds:
            if not model.facts.chosen or not model.end or model.end > last:
                continue
            after = bisect_right(starts, model.start)
            ended = agent.interval[1] if agent.span is not None else 0
            end = starts[after] if after < len(starts) else ended or inf
            if end < first:
                continue
            executed = {call.facts.name for call in agent.calls if model.start <= call.start <= end}
            for number, requested in enumerate(model.facts.chosen):
                is_executed = requested.name in executed or (
                    (requested.call_id, requested.name) in carried and requested.call_id
                )
                if not is_executed:
                    yield _ChosenCall(agent, model, number, requested, end)


def _may_open(agents: Agents, call: _ChosenCall, agent: AgentWork) -> bool:
    """Return whether a call was running all the while, and the recorded parents permit the link."""
    start, end = agent.interval
    if not call.model.end <= start or not (end or inf) <= call.end:
        return False
    caller = call.agent
    if agent.opener is not None:
        return agent.opener is caller.span
    return caller is not agent and not _is_below(agents, caller, agent)


def _has_span(agents: Agents, agent: AgentWork, request: str, texts: Texts) -> bool:
    """Return whether a tool call with a span may have opened the agent."""
    start, end = agent.interval
    return any(
        call.start <= start
        and (not call.end or 0 < end <= call.end)
        and request in texts[call.facts.arguments]
        for call in agents.plain_calls
    )


def _span_of(call: _ChosenCall, agent: AgentWork) -> SlimSpan:
    """Return a span for a call that has none. It ends as the agent that it opened."""
    opened = agent.span
    assert opened is not None
    requested = call.requested
    facts = SpanFacts(
        Role.TOOL,
        name=requested.name,
        call_id=requested.call_id,
        arguments=requested.arguments,
        has_failed=opened.facts.has_failed,
        cancelled=opened.facts.cancelled,
        is_interrupted=opened.facts.is_interrupted,
    )
    return replace(
        opened,
        span_id=id_of_chosen(call.model, call.number),
        start=call.model.end,
        inferred=ONLY_CHOSEN,
        facts=facts,
        above=call.agent.span,
        lasting_id=None,
    )


def id_of_chosen(model: SlimSpan, number: int) -> bytes:
    """Return the id from which the ids of a call without a span are derived."""
    return model.identity + b"chosen" + number.to_bytes(4, "big")


# --- Calls of other runs.
#
# A program can execute a requested call, or answer it, in a later trace: after an approval, in
# another process, or because each of its steps is a trace of its own.

_MOST_IDS = 100
_RESULTS = frozenset(
    "tool_call_response tool_result tool-result tool_response toolResult function_call_output"
    " custom_tool_call_output function_response functionResponse".split()
)
"""The types of the messages, or of their parts, that contain the result of a tool call."""
_IDS = "tool_call_id call_id tool_use_id toolCallId toolUseId id".split()


def followed_call_ids(agents: Agents) -> list[str]:
    """Return the provider's ids of the calls that this run carries on, sorted; at most a hundred.

    These are the calls that its first round answers before it says anything, and those that its
    tool spans carry and that none of its rounds chose. Tool spans do not count if the choices of a
    round are unknown.
    """
    rounds = [span for span in agents.of if span.facts.role is Role.MODEL]
    found = set[str]()
    if rounds:
        first = min(rounds, key=lambda span: span.order)
        found.update(_answered_last(first.facts.messages))
    chosen = {call.call_id for span in rounds for call in span.facts.chosen}
    carried = (
        {span.facts.call_id for span in agents.of if span.facts.role is Role.TOOL}
        - chosen
        - {None, ""}
    )
    if carried and all(map(_are_choices_known, rounds)):
        found.update(each for each in carried if each is not None)
    return sorted(found)[:_MOST_IDS]


def _answered_last(messages: str | None) -> Iterator[str]:
    """Yield the ids of the calls whose results are the last messages of a request."""
    # Most first rounds answer no call; the words spare the parsing of their messages.
    if messages is None or ("tool" not in messages and "unction" not in messages):
        return
    items = parsed(messages)
    if not isinstance(items, list):
        return
    for item in reversed(items):
        ids = list(_result_ids(item))
        if not ids:
            return
        yield from ids


def _result_ids(message: Any) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    pieces: list[Any] = [message]
    for name in ("parts", "content", "contents"):
        value = message.get(name)
        pieces += value if isinstance(value, list) else []
    for piece in pieces:
        if not isinstance(piece, dict):
            continue
        held = next((piece[name] for name in _RESULTS if isinstance(piece.get(name), dict)), piece)
        if held is piece and not (piece.get("type") in _RESULTS or piece.get("role") == "tool"):
            continue
        call_id = next((held[name] for name in _IDS if isinstance(held.get(name), str)), None)
        if call_id:
            yield call_id
