"""Exponential histograms of durations, as OpenTelemetry defines them: their size is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2

# The upper bound of each bucket is `2 ** (1 / SCALE)` times that of the previous one, in
# microseconds, the precision of Postgres. The middle of a bucket is within 0.6 % of all its
# durations. A duration of 0 has bucket 0, longer ones have positive numbers, and negative ones
# (after a clock was set back) the negated numbers. So buckets are in the order of durations.

SCALE = 64
"""The number of buckets between a duration and its double."""


def bucket_of(milliseconds: str) -> str:
    """Return the number of a duration's bucket as SQL; null if the duration is null."""
    number = f"(ceil({SCALE} / ln(2::float8) * ln(abs({milliseconds}) * 1000)) + 1)::smallint"
    return (
        f"CASE WHEN {milliseconds} > 0 THEN {number} WHEN {milliseconds} < 0 THEN -{number}"
        f" WHEN {milliseconds} = 0 THEN 0 END"
    )


def bucket_of_value(milliseconds: float) -> int:
    """Return the number of a duration's bucket."""
    microseconds = abs(milliseconds) * 1000
    number = ceil(SCALE * log2(microseconds)) + 1 if microseconds else 0
    return number if milliseconds >= 0 else -number


def middle_of(bucket: int) -> float:
    """Return the duration in the middle of a bucket, in milliseconds."""
    if bucket == 0:
        return 0.0
    milliseconds: float = 2 ** ((abs(bucket) - 1.5) / SCALE) / 1000
    return milliseconds if bucket > 0 else -milliseconds


def percentile(histogram: Mapping[int, int], share: float, greatest: float) -> float | None:
    """Return a percentile of the durations in a histogram, in milliseconds.

    Args:
        histogram: The number of durations in each bucket.
        share: From 0 to 1.
        greatest: A duration in milliseconds that none in the histogram exceeds.

    Returns:
        The percentile with an error of at most 1 %, and never more than `greatest`; None if the
        histogram is empty.
    """
    rank = ceil(share * sum(histogram.values()))
    for bucket in sorted(histogram):
        rank -= histogram[bucket]
        if rank <= 0:
            # The middle of the last bucket can exceed the slowest call, which the page also shows.
            return min(middle_of(bucket), greatest)
    return None
