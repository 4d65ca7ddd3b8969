"""What is added to a grown forest is found in it as in one that is grown of all spans at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from tests.otel.made_parts import parts_of_a_made_trace, workflow
from tests.otel.made_traces import agent, chat, made, spans_from, tool
from tests.profiles import scaled
from tracer.otel.additions import Additions
from tracer.otel.agents import Agents, find_agents
from tracer.otel.forest import Forest
from tracer.otel.growth import grow
from tracer.otel.spans import Span
from tracer.otel.trace_spans import TraceSpans

pytestmark = pytest.mark.thorough


def grown(spans: TraceSpans) -> Additions | None:
    """Return what takes more spans; None where nothing does."""
    forest = spans.planted()
    is_plain = grow(forest) and spans.are_plain
    return Additions(forest, find_agents(forest)) if is_plain else None


def found(forest: Forest, agents: Agents) -> dict[str, Any]:
    """Return all that was found out about spans."""
    names = ("order", "parents", "missing", "readings", "telling", "places")
    by_id = {
        each: (agent.is_there, agent.opener, agent.start, agent.models, agent.calls)
        for each, agent in agents.by_id.items()
    }
    return {name: getattr(forest, name) for name in names} | {
        "agents": by_id,
        "of": agents.of,
        "loose": agents.loose,
        "plain_calls": agents.plain_calls,
    }


@given(parts=parts_of_a_made_trace())
@settings(max_examples=scaled(300))
def test_what_is_added_is_found_as_in_the_whole(parts: list[list[Span]]) -> None:
    spans = TraceSpans()
    spans.put(parts[0])
    additions = grown(spans)

    for part in parts[1:]:
        spans.put(part)
        more = spans.more() if additions is not None else None
        if additions is None or more is None or not additions.take(more):
            additions = grown(spans)
            continue
        whole = spans.planted()
        assert grow(whole)
        assert found(additions.forest, additions.agents) == found(whole, find_agents(whole))


FIRST = [agent(1, "a"), chat(2, parent=1), tool(3, "x", "{}", parent=1), tool(4, "y", parent=9)]


@pytest.mark.parametrize(
    ("more", "touched"),
    [
        pytest.param(tool(5, "z", parent=1), {1}, id="a call of an agent"),
        pytest.param(chat(5, parent=3), {1}, id="a round within a call"),
        pytest.param(agent(5, "b", parent=3), {5}, id="an agent that a call opened"),
        pytest.param(made(5, "http", parent=3), set(), id="a wrapper"),
        pytest.param(agent(9, "b", parent=3), {9}, id="the agent that a call waited for"),
        pytest.param(made(9, "http", parent=1), {1}, id="a wrapper that a call waited for"),
        pytest.param(tool(5, "z"), {None}, id="a call of nobody"),
        pytest.param(chat(5, parent=8), {8}, id="a round of an agent that has not come"),
    ],
)
def test_a_span_touches_the_work_of_its_agent_alone(
    more: dict[str, Any], touched: set[int | None]
) -> None:
    spans = TraceSpans()
    spans.put(spans_from(*FIRST))
    additions = grown(spans)
    assert additions is not None

    spans.put(spans_from(more))

    assert additions.take(spans.more() or [])
    ids = {None if each is None else int.from_bytes(each) for each in additions.touched}
    assert ids == touched


def test_the_end_of_a_span_touches_its_agent() -> None:
    spans = TraceSpans()
    told = spans_from(*FIRST)
    spans.put([*told[:2], replace(told[2], end=0, body=b"")])
    additions = grown(spans)
    assert additions is not None

    spans.put(told[2:3])

    assert additions.take(spans.more() or [])
    assert additions.touched == {told[0].span_id}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([workflow(5, "w", parent=3)], id="what may be an agent"),
        pytest.param([tool(5, "x", "{}", parent=3)], id="a call within a call"),
        pytest.param([tool(9, "y", parent=1)], id="a call around a call that waited for it"),
        pytest.param([agent(5, "a", parent=1)], id="an agent within an agent"),
        pytest.param([made(5, "http", parent=5)], id="a span that is its own parent"),
        pytest.param([chat(9, parent=4)], id="a circle"),
    ],
)
def test_what_may_change_more_is_left_to_growing_anew(more: list[dict[str, Any]]) -> None:
    spans = TraceSpans()
    spans.put(spans_from(*FIRST))
    additions = grown(spans)
    assert additions is not None

    spans.put(spans_from(*more))

    assert not additions.take(spans.more() or [])
