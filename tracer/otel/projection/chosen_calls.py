"""Compare the tool calls that models' answers request with those that spans executed.

A requested call can prove which agent a span belongs to, which agent it opened, which run it
carries on, and that it never ran. Providers number calls in their own ways, and local models number
them per conversation, so an id alone proves little. Agents are linked only if exactly one pair of
spans can be meant.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from tracer.otel.dialects.dialect import RequestedCall, Role, SlimSpan, SpanFacts, text
from tracer.otel.projection.agents import BY_TEXT, Agents, AgentWork, Choice, is_within_tool
from tracer.otel.projection.forest import NODES, ending_of
from tracer.records import Reason, Status
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
        for words in texts[call.requested.arguments] & wanted:
            by_text.setdefault(words, []).append(call)
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
            if any(words in request for words in texts[call.requested.arguments])
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


# --- Calls that an agent's last round chose, and that nothing executed.
#
# A call counts as executed if any span may be its execution. Then it gets no record: a record that
# claims that a call did not run must not be wrong. These calls get none, too:
#
# - calls of output tools: the agent's answer is their arguments,
# - hand-offs: the agent that took over has spans,
# - calls of tools whose executions the emitter does not report: they were chosen before, and the
#   agent continued without a span of theirs.

_OUTPUT_TOOLS = ("final_result", "final_answer", "structured_output", "StructuredOutput")
"""The names of the tools by which frameworks let a model give its structured answer. In some
frameworks, `_` and a type follow."""
_PAUSES = frozenset(
    "interrupt interrupted paused pause suspended suspend requires_action requires-action"
    " input_required input-required awaiting_approval approval_required tool_approval"
    " waiting".split()
)
"""Finish reasons of agents that wait for a person or another system."""
_PAUSED_EVENT = "gen_ai.agent.paused"


class UnreachedCall(NamedTuple):
    """A tool call that was chosen and never executed."""

    number: int
    """Its position among the calls in the model's answer, from 0."""
    requested: RequestedCall
    reason: Reason


class AgentRun(NamedTuple):
    """The work of one agent, with the rounds that chose its tool calls."""

    agent: AgentWork | None
    """The agent; None for the work that belongs to no agent."""
    span: SlimSpan
    """The agent's span, or the span around the work that belongs to no agent."""
    answer: str | None
    rounds: Sequence[SlimSpan]
    choices: Sequence[tuple[SlimSpan, Choice | None]]
    """The agent's tool calls that a model can have chosen, with their rounds."""


class Unreached:
    """Finds the calls that were chosen and never executed, in one run."""

    def __init__(self, spans: Sequence[SlimSpan], agents: Agents) -> None:
        """Store the spans of a run, sorted and arranged, and its agents."""
        self._spans = spans
        self._agents = agents

    @cached_property
    def top_framework(self) -> SlimSpan | None:
        """The workflow or chain around all work of the run; None if there is none."""
        tops = [span for span in self._spans if span.parent is None]
        if len(tops) != 1 or tops[0].missing_parent is not None:
            return None
        return tops[0] if tops[0].facts.role in (Role.WORKFLOW, Role.CHAIN) else None

    def calls(self, agent: AgentRun) -> tuple[SlimSpan, list[UnreachedCall]] | None:
        """Return the last round of an agent, and its calls that nothing executed.

        Returns None if there are no such calls, or if the agent has not ended by itself.
        """
        rounds = [span for span in agent.rounds if not is_within_tool(span)]
        if not rounds or not rounds[-1].facts.chosen or not agent.span.end:
            return None
        last = rounds[-1]
        if agent.span.facts.is_interrupted or not last.end:
            return None
        if ending_of(last, None, last.facts.has_failed).status is not Status.SUCCEEDED:
            return None
        left = self._without_execution(agent, last)
        if not left or self._is_followed_by_others(agent, last):
            return None
        without_spans = _tools_without_spans(agent, rounds[:-1])
        if without_spans is None:
            return None
        reason = Reason.DEFERRED if self._has_paused(agent, last, left) else Reason.NOT_REACHED
        answer = _AgentAnswer(agent.answer)
        found = [
            UnreachedCall(number, call, reason)
            for number, call in left
            if call.name not in without_spans
            and not answer.is_output(call)
            and not self._is_executed_elsewhere(agent, last, call)
        ]
        return (last, found) if found else None

    def _without_execution(
        self, agent: AgentRun, last: SlimSpan
    ) -> list[tuple[int, RequestedCall]]:
        """Return the calls of the last round without a tool span; empty if it is uncertain."""
        left = list(enumerate(last.facts.chosen))
        unmatched = []
        executing = [
            each for each in agent.choices if each[1] is not None and each[1].model is last
        ]
        for span, choice in executing:
            requested = choice.requested if choice is not None else None
            index = next((at for at, (_, call) in enumerate(left) if call == requested), None)
            if index is None:
                unmatched.append(span.facts)
            else:
                del left[index]
        for facts in unmatched:
            index = next(
                (
                    at
                    for at, (_, call) in enumerate(left)
                    if (facts.call_id and call.call_id == facts.call_id) or call.name == facts.name
                ),
                None,
            )
            if index is None:
                return []  # a span under another name may execute any of them
            del left[index]
        return left

    def _is_followed_by_others(self, agent: AgentRun, last: SlimSpan) -> bool:
        """Return whether later work shows that the round is not the last, or that it handed over.

        A tool call that awaits its round proves a later one. An agent that this agent started
        without a tool call took over.
        """
        if any(call.facts.awaits_round and call.start >= last.start for call, _ in agent.choices):
            return True
        return any(each.start >= last.start for each in self._started.get(agent.span, ()))

    def _has_paused(
        self, agent: AgentRun, last: SlimSpan, left: Iterable[tuple[int, RequestedCall]]
    ) -> bool:
        span = agent.span
        around = [each for each in self._within.get(span, ()) if each.end >= last.end]
        endings = [ending_of(each) for each in (span, *around)]
        if any(each.reason == Reason.DEFERRED for each in endings):
            return True
        events = [*span.events, *last.events]
        reasons = [
            *span.facts.finish_reasons,
            *last.facts.finish_reasons,
            *(event.attributes.get("finish_reason") for event in events),
            *_values(span.attributes.get("gen_ai.response.finish_reasons")),
        ]
        if any(isinstance(each, str) and each.lower() in _PAUSES for each in reasons):
            return True
        if any(event.name == _PAUSED_EVENT for event in events):
            return True
        # The agent returned the call to its caller.
        return any(call.call_id and call.call_id in (agent.answer or "") for _, call in left)

    def _is_executed_elsewhere(self, agent: AgentRun, last: SlimSpan, call: RequestedCall) -> bool:
        """Return whether a span outside of the agent's own tool calls may execute a call."""
        tools = (
            *self._tools.get((call.call_id, call.name), ()),
            *self._tools.get((None, call.name), ()),
        )
        if any(
            each.start >= last.start and self._agents.of[each] is not agent.agent for each in tools
        ):
            return True
        return any(
            each.start >= last.start and call.name in (each.name, each.name.rpartition(" ")[2])
            for each in self._within.get(agent.span, ())
            if each.facts.role not in NODES
        )

    @cached_property
    def _tools(self) -> dict[tuple[str | None, str | None], list[SlimSpan]]:
        """The tool calls of the run, by call id and name."""
        found: dict[tuple[str | None, str | None], list[SlimSpan]] = {}
        for span in self._agents.of:
            if span.facts.role is Role.TOOL:
                found.setdefault((span.facts.call_id, span.facts.name), []).append(span)
        return found

    @cached_property
    def _within(self) -> dict[SlimSpan, list[SlimSpan]]:
        """The tool calls and wrappers directly inside each span that holds an agent's work."""
        found: dict[SlimSpan, list[SlimSpan]] = {}
        for span in self._spans:
            if span.facts.role is Role.MODEL or span.facts.role is Role.AGENT:
                continue
            holder = span.above if span.above is not None else self.top_framework
            if holder is not None and holder is not span:
                found.setdefault(holder, []).append(span)
        return found

    @cached_property
    def _started(self) -> dict[SlimSpan, list[AgentWork]]:
        """The agents that each agent started without a tool call."""
        found: dict[SlimSpan, list[AgentWork]] = {}
        for agent in self._agents.by_id.values():
            opener = agent.opened_by
            if opener is not None and opener.facts.role is Role.AGENT:
                found.setdefault(opener, []).append(agent)
        return found


def _values(value: object) -> Iterable[object]:
    found = parsed(value)
    return found if isinstance(found, list | tuple) else (found,)


def _tools_without_spans(agent: AgentRun, earlier: list[SlimSpan]) -> set[str | None] | None:
    """Return the names of tools that were chosen in earlier rounds and have no span in the agent.

    Returns None if there are such tools, and no tool of earlier rounds has a span: then the emitter
    reports no executions.
    """
    chosen = {call.name for span in earlier for call in span.facts.chosen}
    executed = {span.facts.name for span, _ in agent.choices}
    without = chosen - executed
    return None if without and without == chosen else without


class _AgentAnswer:
    """The answer of an agent, compared with the arguments of the calls that may have given it."""

    def __init__(self, answer: str | None) -> None:
        self._text = (answer or "").strip()
        value = parsed(self._text)
        self._values = [value, *(value.values() if isinstance(value, dict) else ())]

    def is_output(self, call: RequestedCall) -> bool:
        """Return whether a call gave the agent's answer, instead of running a tool."""
        name = call.name or ""
        if any(name == each or name.startswith(each + "_") for each in _OUTPUT_TOOLS):
            return True
        arguments = parsed(call.arguments)
        if not self._text or not isinstance(arguments, dict) or not arguments:
            return False
        if arguments in self._values:
            return True
        # Some frameworks wrap an answer that is no object: {"response": 5}.
        value = next(iter(arguments.values()))
        return len(arguments) == 1 and (value in self._values or text(value) == self._text)
