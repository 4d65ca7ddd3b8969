"""Traces that nobody makes but to hold up a server: reading them takes about as long as they are.

What each of them took grew with the square of its spans, up to minutes; the bound is far from that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, made, projection_of, spans_from, tool
from tracer.otel.choices import LARGE_CHARACTERS, MOST_TOLD
from tracer.otel.projection import Projection, project
from tracer.otel.spans import Span
from tracer.records import Kind

FAR = 1_000_000
SECONDS = 5
LARGE = "x" * 1_000_000
Made = list[dict[str, Any]]


def lost_agents_beside_the_calls_of_one_that_has_not_come() -> Made:
    calls = [tool(each, "c", parent=FAR, at=(0, 1000)) for each in range(1, 3001)]
    return calls + [agent(FAR + each, "b", at=(1, 5)) for each in range(1, 101)]


def calls_within_one_that_was_given_much() -> Made:
    within = [tool(each, "t", f'{{"a": {each}}}', parent=1) for each in range(2, 2000)]
    return [tool(1, "t", json.dumps({"a": LARGE})), *within]


def calls_below_a_node_that_was_given_much() -> Made:
    given = json.dumps([{"name": "t", "id": "1", "args": {"a": LARGE}}])
    call = {"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": "{}"}
    node = made(1, "tools", {"openinference.span.kind": "CHAIN", "input.value": given})
    return [node, *(made(each, "t", call, parent=1) for each in range(2, 2000))]


@pytest.mark.parametrize(
    "trace",
    [
        lost_agents_beside_the_calls_of_one_that_has_not_come,
        calls_within_one_that_was_given_much,
        calls_below_a_node_that_was_given_much,
    ],
)
def test_a_trace_is_read_in_about_the_time_that_its_size_takes(trace: Callable[[], Made]) -> None:
    spans = spans_from(*trace())
    assert seconds_of(lambda: project(spans)) < SECONDS


def parts_of_wrappers_that_wait() -> tuple[list[Span], list[Span]]:
    """Return many spans that wait for one, and that one's parents, from below."""
    waiting = [made(each, "w", parent=FAR) for each in range(1, 6001)]
    above = [made(FAR + each, "w", parent=FAR + each + 1) for each in range(1500)]
    return spans_from(*waiting), spans_from(*above)


def test_what_is_added_to_a_trace_takes_no_longer_than_the_whole() -> None:
    there, more = parts_of_wrappers_that_wait()
    projection = Projection()
    projection.spans.put(there)
    projection.projected()
    projection.spans.put(more)
    added = seconds_of(projection.projected)
    whole = seconds_of(lambda: project([*there, *more]))
    assert added < 1 + 2 * whole


def seconds_of(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def test_what_a_round_asked_for_once_is_not_kept_with_each_of_many_calls() -> None:
    small, large = "{}", json.dumps({"a": "x" * LARGE_CHARACTERS})
    calls = [tool(10 + each, "t", None, "c", parent=1, at=(2, 3)) for each in range(20)]
    others = [tool(100 + each, "t", None, "d", parent=1, at=(2, 3)) for each in range(20)]
    asking = chat(2, ("c", "t", large), ("d", "t", small), parent=1, at=(1, 2))

    run = projection_of(agent(1, "a"), asking, *calls, *others)

    kept = [call["arguments"] for call in run.records[Kind.TOOL_CALL].values()]
    assert (kept.count(large), kept.count(small)) == (MOST_TOLD, 20)
    assert all(call["think_act_id"] for call in run.records[Kind.TOOL_CALL].values())


def test_a_call_below_a_large_node_keeps_what_it_says_itself_in_any_order() -> None:
    given = json.dumps([{"name": "t", "id": "1", "args": {"a": "x" * 200_000}}])
    call = {"openinference.span.kind": "TOOL", "tool.name": "t", "input.value": '{"own": 1}'}
    node = made(1, "tools", {"openinference.span.kind": "CHAIN", "input.value": given})
    spans = spans_from(node, *(made(each, "t", call, parent=1) for each in range(2, 22)))
    projection = Projection()
    few = [len(each) for each in arguments_after(projection, spans[:9])]
    many = arguments_after(projection, spans[9:])

    assert min(few) > 200_000
    assert set(many) == {'{"own": 1}'}
    assert projection.projected().records == project(spans[::-1]).records


def arguments_after(projection: Projection, spans: list[Span]) -> list[str]:
    projection.spans.put(spans)
    records = projection.projected().records
    return [call["arguments"] for call in records[Kind.TOOL_CALL].values()]
