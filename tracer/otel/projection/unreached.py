"""Find the tool calls that an agent's last round chose, and that nothing executed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from tracer.otel.dialects.dialect import RequestedCall, Role, SlimSpan, text
from tracer.otel.projection.agents import Agents, AgentWork, Choice, is_within_tool
from tracer.otel.projection.forest import NODES, ending_of
from tracer.records import Reason, Status
from tracer.records.arguments import parsed

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
