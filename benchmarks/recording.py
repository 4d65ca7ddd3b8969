"""The cost of recording for the agent: a call's writes in its process, and the first wait."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import by_hand, durable_write
from benchmarks.figures import Figure
from benchmarks.surroundings import Bench


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the buffered writes, then the durable one."""
    yield from by_hand.measured(bench)
    yield from durable_write.measured(bench)
