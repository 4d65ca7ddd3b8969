"""What is remembered of traces between their writes, and for how long."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.otel.made_traces import chat, spans_from
from tracer.storage.known_traces import KnownTrace, KnownTraces

pytestmark = pytest.mark.thorough

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))


def trace_of(spans: int) -> KnownTrace:
    trace = KnownTrace()
    trace.state.put(spans_from(*(chat(number) for number in range(1, spans + 1))))
    return trace


SIZE = trace_of(1).state.size


def test_a_trace_is_known_once_and_only_as_it_was_written() -> None:
    known, trace = KnownTraces(), trace_of(1)
    known.keep(ONE, 7, trace)
    known.keep(TWO, 7, trace)

    assert known.take(ONE, 7) is trace
    assert known.take(ONE, 7) is None
    assert known.take(TWO, 8) is None


def test_the_trace_written_longest_ago_is_forgotten_first() -> None:
    known = KnownTraces(max_bytes=2 * SIZE)
    for run_id in (ONE, TWO, THREE):
        known.keep(run_id, 1, trace_of(1))

    assert [known.take(run_id, 1) is None for run_id in (ONE, TWO, THREE)] == [True, False, False]


def test_a_trace_that_is_too_large_takes_no_room_from_others() -> None:
    known = KnownTraces(max_bytes=2 * SIZE)
    known.keep(ONE, 1, trace_of(1))
    known.keep(TWO, 1, trace_of(3))

    assert known.take(TWO, 1) is None
    assert known.take(ONE, 1) is not None
