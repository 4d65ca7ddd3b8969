"""Thinning removes spans outside agent work, and changes no record."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import agent, chat, made, spans_from, tool
from tests.profiles import scaled
from tracer.otel.otlp.blocks import spans_of as spans_in
from tracer.otel.otlp.blocks import traces_of
from tracer.otel.otlp.repacking import Item, merge_messages, message_with
from tracer.otel.otlp.spans import Span
from tracer.otel.projection.project import project_run
from tracer.otel.projection.thinning import thinned

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def items_of(*messages: bytes) -> list[Item]:
    return merge_messages([(message, NOW) for message in messages])


def names_after(spans: Sequence[Span], *logs: bytes) -> list[str] | None:
    """Return the names of the spans that stay."""
    left = thinned(items_of(*(trace.message for trace in traces_of(spans)), *logs))
    return None if left is None else [span.name for span in spans_in([message_with(left)])]


def is_unchanged(items: Sequence[Item]) -> bool:
    left = thinned(items)
    if left is None:
        return True
    one, other = project_run([message_with(items)]), project_run([message_with(left)])
    return (one.run, one.rows) == (other.run, other.rows)


def test_thinning_removes_spans_outside_agent_work() -> None:
    spans = spans_from(
        made(1, "POST /chat"),
        agent(2, "planner", parent=1),
        made(3, "retry", parent=2),
        chat(4, ("c", "measure", "{}"), parent=3),
        made(5, "HTTP POST", parent=4),
        tool(6, "measure", parent=2),
        made(7, "SELECT", parent=6),
        made(8, "SELECT", parent=7),
        made(9, "log in", parent=1),
    )
    assert names_after(spans) == [
        "POST /chat",
        "invoke_agent planner",
        "retry",
        "chat m",
        "execute_tool measure",
    ]


def test_thinning_removes_a_trace_without_agent_work() -> None:
    assert names_after(spans_from(made(1, "GET /"), made(2, "SELECT", parent=1))) is None


def test_thinning_keeps_log_records() -> None:
    [logs] = logs_as_traces(made_log("asked", 1, span_id=3))
    spans = spans_from(agent(1, "planner"), made(3, "SELECT", parent=1))
    left = thinned(items_of(traces_of(spans)[0].message, logs.message))
    assert left is not None
    assert [item.span_id for item in left] == [(1).to_bytes(8), None]


@pytest.mark.parametrize("name", NAMES)
def test_thinning_does_not_change_the_records_of_captures(name: str) -> None:
    for spans in by_trace(spans_of(name)).values():
        assert is_unchanged(items_of(*(trace.message for trace in traces_of(spans))))


@settings(max_examples=scaled(40))
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_thinning_any_subset_of_a_trace_does_not_change_its_records(name: str, seed: int) -> None:
    chance = random.Random(seed)
    for spans in by_trace(spans_of(name)).values():
        some = chance.sample(spans, chance.randint(1, len(spans)))
        assert is_unchanged(items_of(*(trace.message for trace in traces_of(some))))
