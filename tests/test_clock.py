"""The clock of recorders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tracer.clock import steady_clock

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_record_never_finishes_before_it_starts_if_the_system_clock_is_set_back() -> None:
    system = [0, 1, -3600, -3599, -3590, 20]
    monotonic = [0, 1, 2, 3, 12, 13]
    clock = steady_clock(
        lambda: START + timedelta(seconds=system.pop(0)), lambda: float(monotonic.pop(0))
    )

    seconds = [(clock() - START).total_seconds() for _ in range(5)]

    assert seconds == [1, 2, 3, 12, 20]
