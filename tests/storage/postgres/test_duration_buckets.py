"""Percentiles of a duration histogram are accurate to 1 % at any duration."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.postgres.deletions import rows
from tracer.storage.postgres import Pool
from tracer.storage.postgres.histograms import bucket_of, bucket_of_value, middle_of, percentile

pytestmark = pytest.mark.thorough

LONGEST = 8_000 * 365 * 86_400 * 1_000_000

durations = st.integers(-LONGEST, LONGEST) | st.integers(-1_000, 100_000)
"""In microseconds; by clocks that go back, less than nothing."""


@given(microseconds=st.lists(durations, min_size=1, max_size=50))
async def test_percentiles_from_a_histogram_are_near_the_exact_ones(
    pool: Pool, microseconds: list[int]
) -> None:
    ms = [each / 1000 for each in microseconds]
    found = await rows(pool, f"SELECT {bucket_of('ms')} FROM unnest(%s::float8[]) AS ms", ms)
    buckets = [bucket for (bucket,) in found]
    for duration, bucket in zip(ms, buckets, strict=True):
        assert abs(middle_of(bucket) - duration) <= abs(duration) * 0.006
        assert abs(bucket_of_value(duration) - bucket) <= 1  # logarithms of two libraries
    assert [bucket for _, bucket in sorted(zip(ms, buckets, strict=True))] == sorted(buckets)
    exact = "SELECT percentile_disc(%s) WITHIN GROUP (ORDER BY ms) FROM unnest(%s::float8[]) AS ms"
    for share in (0.5, 0.95, 0.99):
        [(expected,)] = await rows(pool, exact, share, ms)
        about = percentile(Counter(buckets), share, max(ms))
        assert about is not None
        assert abs(about - expected) <= abs(expected) / 100
        assert about <= max(ms)
