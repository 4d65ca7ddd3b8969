"""Durations as an exponential histogram, in the sense of OpenTelemetry: some tell of any number.

Each bucket reaches `2 ** (1 / SCALE)` times as far as the one before, in microseconds, which is as
exact as Postgres keeps them; its middle is within 0.6 % of all in it. The number of a duration's
bucket is 0 for none, more than 0 for others, and that with a minus for those of clocks that went
back: so numbers are in the order of durations.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

SCALE = 64
"""How many buckets there are from a duration to its double."""


def bucket_of(milliseconds: str) -> str:
    """Return the number of a duration's bucket, as SQL; null where there is none."""
    number = f"(ceil({SCALE} / ln(2::float8) * ln(abs({milliseconds}) * 1000)) + 1)::smallint"
    return (
        f"CASE WHEN {milliseconds} > 0 THEN {number} WHEN {milliseconds} < 0 THEN -{number}"
        f" WHEN {milliseconds} = 0 THEN 0 END"
    )


def middle_of(bucket: int) -> float:
    """Return the milliseconds in the middle of a bucket."""
    if bucket == 0:
        return 0.0
    milliseconds: float = 2 ** ((abs(bucket) - 1.5) / SCALE) / 1000
    return milliseconds if bucket > 0 else -milliseconds


def percentile(histogram: Mapping[int, int], share: float) -> float | None:
    """Return the duration that a share of all durations does not exceed, in milliseconds.

    Args:
        histogram: The number of durations in each bucket.
        share: From 0 to 1.

    Returns:
        Within 1 % of a duration in the histogram; None if that is empty.
    """
    rank = ceil(share * sum(histogram.values()))
    for bucket in sorted(histogram):
        rank -= histogram[bucket]
        if rank <= 0:
            return middle_of(bucket)
    return None
