"""Every capture gives exactly the calls, statuses, sub-agents, parents and tokens of its run."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.otel.captured import NAMES, expected_facts, projected, seen_facts, spans_of
from tests.otel.projections import changed, drop_attributes
from tracer.otel.projection.agents import BY_TEXT, BY_TIME
from tracer.otel.projection.chosen_calls import BY_NAME
from tracer.records import Kind
from tracer.records.spans import Span

LOST_WITHIN_THE_TRACE = ["agno-openinference-team-single", "openai-agents-traceloop-single"]
CALLED_WITHOUT_SPANS = {"smolagents-nested": 3, "smolagents-parallel": 2}
"""The number of agents that were opened by calls without a span."""
CONTENT = {"messages", "arguments", "result", "parameters", "value", "content"}


@pytest.mark.parametrize("name", NAMES)
def test_capture_has_the_expected_records(name: str) -> None:
    seen = seen_facts(projected(spans_of(name)), name)

    assert seen == expected_facts(name)


@pytest.mark.parametrize("name", NAMES)
def test_only_inferred_links_are_marked_as_inferred(name: str) -> None:
    plans = [plan for run in projected(spans_of(name)) for plan in run.records[Kind.PLAN].values()]
    inferred = [plan for plan in plans if plan["inferred"]]
    joined = [plan["inferred_from"] for plan in inferred if plan["tool_call_id"] is not None]

    by_text = [BY_TEXT] * 2 if name in LOST_WITHIN_THE_TRACE else []
    assert joined == by_text + [BY_NAME] * CALLED_WITHOUT_SPANS.get(name, 0)


@pytest.mark.parametrize("name", LOST_WITHIN_THE_TRACE)
def test_orphan_agent_without_content_is_linked_by_its_time(name: str) -> None:
    bare = [_without_content(span) for span in spans_of(name)]

    (run,) = projected(bare)

    calls, plans = run.records[Kind.TOOL_CALL], run.records[Kind.PLAN].values()
    openers = [calls[plan["tool_call_id"]]["name"] for plan in plans if plan["tool_call_id"]]
    delegating = Counter(call["name"] for call in calls.values())[openers[0]]
    assert len(openers) == delegating == 2
    assert [plan["inferred_from"] for plan in plans if plan["inferred"]] == [BY_TIME] * 2


def _without_content(span: Span) -> Span:
    return changed(
        span,
        lambda wire: drop_attributes(wire, lambda name: not CONTENT.isdisjoint(name.split("."))),
    )
