"""Traces made to block a server are projected in time that grows linearly with their size.

At full size, quadratic growth takes minutes and fails the time limit. The quick profile projects
smaller traces of the same shapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, make_span, projection_of, spans_from, tool
from tests.otel.projections import project
from tests.processor_time import processor_limit
from tracer.otel.otlp.spans import encode_protobuf
from tracer.otel.projection import project_run
from tracer.otel.projection.agents import LARGE_CHARACTERS, MOST_COPIES
from tracer.records import Kind

FAR = 1_000_000
SOON = 60
"""Seconds of processor time."""
LARGE = "x" * 4_000_000
Made = list[dict[str, Any]]


def lost_agents_beside_the_calls_of_one_that_has_not_come(size: int) -> Made:
    calls = [tool(each, "c", parent=FAR, at=(0, 1000)) for each in range(1, size // 4 + 1)]
    return calls + [agent(FAR + each, "b", at=(1, 5)) for each in range(1, 101)]


def calls_within_one_that_was_given_much(size: int) -> Made:
    within = [tool(each, "t", f'{{"a": {each}}}', parent=1) for each in range(2, size)]
    return [tool(1, "t", json.dumps({"a": LARGE})), *within]


def calls_below_a_node_that_was_given_much(size: int) -> Made:
    given = json.dumps([{"name": "t", "id": "1", "args": {"a": LARGE}}])
    call = {"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "{}"}
    node = make_span(1, "tools", {"openinference.span.kind": "CHAIN", "input.value": given})
    return [node, *(make_span(each, "t", call, parent=1) for each in range(2, size))]


def agents_that_one_call_opened_and_what_may_be_within_them(size: int) -> Made:
    asked = {"gen_ai.input.messages": json.dumps([{"role": "user", "content": "x"}])}
    opened = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "b", **asked}
    agents = [make_span(each, "b", opened, parent=1) for each in range(2, size)]
    model = {"gen_ai.operation.name": "chat", **asked}
    within = [
        make_span(FAR + 2 * each, "m", model, parent=FAR + 2 * each + 1) for each in range(size)
    ]
    return [tool(1, "c", '{"q": "x"}'), *agents, *within]


def agents_that_one_with_many_calls_handed_over_to(size: int) -> Made:
    calls = [tool(each, "handoff", "a", parent=1, at=(1, 2)) for each in range(2, size)]
    return [_node(1, "a", None), *calls, *(_node(FAR + n, f"b{n}", "a") for n in range(size))]


def agents_that_were_asked_the_same_as_calls_with_long_names(size: int) -> Made:
    name = "a" * (size * 50 // 3)
    calls = [tool(each, name, '{"q": "x"}', at=(0, 1)) for each in range(1, 91)]
    return calls + [agent(FAR + n, f"{'a' * 20}{n}", asked="x", at=(2, 3)) for n in range(size)]


def _node(number: int, name: str, above: str | None) -> dict[str, Any]:
    node = {"openinference.span.kind": "AGENT", "agent.name": name, "graph.node.id": name}
    at = (0, 5) if above is None else (10, 20)
    said = node | ({"graph.node.parent_id": above} if above else {})
    return make_span(number, name, said, at=at, scope="openinference.instrumentation.openai_agents")


CALLS: dict[Callable[[int], Made], Callable[[int], int]] = {
    agents_that_one_call_opened_and_what_may_be_within_them: lambda size: 1,
    agents_that_one_with_many_calls_handed_over_to: lambda size: size - 2,
    agents_that_were_asked_the_same_as_calls_with_long_names: lambda size: 90,
    lost_agents_beside_the_calls_of_one_that_has_not_come: lambda size: size // 4,
    calls_within_one_that_was_given_much: lambda size: size - 1,
    calls_below_a_node_that_was_given_much: lambda size: size - 2,
}
"""How many tool calls a trace of a size has."""


@pytest.mark.parametrize("size", [500, pytest.param(12_000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("trace", CALLS)
def test_expensive_trace_is_projected_with_every_call(
    trace: Callable[[int], Made], size: int
) -> None:
    with processor_limit(SOON):
        run = project_run([encode_protobuf(spans_from(*trace(size)))])

    assert len(run.rows[Kind.TOOL_CALL]) == CALLS[trace](size)


@pytest.mark.parametrize("size", [250, pytest.param(4_000, marks=pytest.mark.thorough)])
def test_chain_of_parents_that_arrives_after_many_children_is_projected(size: int) -> None:
    waiting = spans_from(*(make_span(each, "w", parent=FAR) for each in range(1, 5 * size + 1)))
    above = [make_span(FAR + each, "w", parent=FAR + each + 1) for each in range(size)]

    with processor_limit(SOON):
        assert not project([*waiting, *spans_from(*above)]).is_agent_work


def test_large_arguments_of_a_round_are_copied_to_a_limited_number_of_calls() -> None:
    small, large = "{}", json.dumps({"a": "x" * LARGE_CHARACTERS})
    calls = [tool(10 + each, "t", None, "c", parent=1, at=(2, 3)) for each in range(20)]
    others = [tool(100 + each, "t", None, "d", parent=1, at=(2, 3)) for each in range(20)]
    asking = chat(2, ("c", "t", large), ("d", "t", small), parent=1, at=(1, 2))

    run = projection_of(agent(1, "a"), asking, *calls, *others)

    kept = [call["arguments"] for call in run.records[Kind.TOOL_CALL].values()]
    assert (kept.count(large), kept.count(small)) == (MOST_COPIES, 20)
    assert all(call["think_act_id"] for call in run.records[Kind.TOOL_CALL].values())


def test_calls_with_their_own_arguments_do_not_count_towards_the_copy_limit() -> None:
    large = json.dumps({"a": "x" * LARGE_CHARACTERS})
    saying = [tool(10 + each, "t", "{}", "c", parent=1, at=(2, 3)) for each in range(MOST_COPIES)]
    asking = chat(2, ("c", "t", large), parent=1, at=(1, 2))

    run = projection_of(
        agent(1, "a"), asking, *saying, tool(3, "t", None, "c", parent=1, at=(4, 5))
    )

    kept = [call["arguments"] for call in run.records[Kind.TOOL_CALL].values()]
    assert kept == ["{}"] * MOST_COPIES + [large]


def test_each_of_many_sibling_calls_has_its_own_arguments() -> None:
    given = json.dumps([{"name": "t", "id": "1", "args": {"a": "x" * 200_000}}])
    call = {"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": '{"own": 1}'}
    node = make_span(1, "tools", {"openinference.span.kind": "CHAIN", "input.value": given})
    calls = [make_span(each, "t", call, parent=1) for each in range(2, 22)]

    few, many = (
        [each["arguments"] for each in projection_of(node, *found).records[Kind.TOOL_CALL].values()]
        for found in (calls[:8], calls)
    )

    assert min(len(each) for each in few) > 200_000
    assert set(many) == {'{"own": 1}'}
