"""Traces of other tools' SDKs become the agents, calls, contents and tokens of their runs."""

from __future__ import annotations

import random

import pytest

from tests.otel.captured import projected, projected_in_parts
from tests.otel.made_traces import make_span, projection_of
from tests.otel.sdks.captured import NAMES, expected_facts, seen_facts, spans_of
from tests.otel.test_order import all_differences
from tests.profiles import quick_among
from tracer.records import Kind


@pytest.mark.parametrize("name", NAMES)
def test_capture_has_the_expected_agents_calls_and_tokens(name: str) -> None:
    expected = expected_facts(name)

    seen = seen_facts(spans_of(name))

    assert seen.agents == expected.agents
    assert seen.calls == expected.calls
    assert seen.tokens == expected.tokens


@pytest.mark.parametrize("name", quick_among(NAMES, NAMES[::5]))
def test_records_are_equal_if_a_capture_is_reordered_split_or_repeated(name: str) -> None:
    spans = spans_of(name)
    once = projected(spans)
    shuffled = [*spans, *spans[::3]]
    random.Random(name).shuffle(shuffled)

    assert all_differences(projected(reversed(spans)), once) == []
    assert all_differences(projected(shuffled), once) == []
    assert all_differences(projected_in_parts([span] for span in spans), once) == []
    assert all_differences(projected_in_parts([spans, spans]), once) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"args": [], "kwargs": {"q": "x"}}', '{"q":"x"}'),
        ('{"args": ["x"], "kwargs": {}}', "x"),
        ('{"args": 1, "kwargs": {}}', '{"args": 1, "kwargs": {}}'),
    ],
)
def test_tool_arguments_of_any_form_are_recorded(arguments: str, expected: str) -> None:
    observed = {"langfuse.observation.type": "tool", "langfuse.observation.input": arguments}

    run = projection_of(make_span(1, "search", observed))

    (call,) = run.records[Kind.TOOL_CALL].values()
    assert call["arguments"] == expected
