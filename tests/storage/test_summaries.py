"""Old hours of tool calls are summed up, and statistics are those of the calls all the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.citus_databases import on_one_postgres
from tests.profiles import scaled
from tests.storage.old_histories import Happening, Summed, Twins, beginnings, happenings
from tracer.storage.engine import Pool
from tracer.tool_stats import TimeRange

pytestmark = on_one_postgres


@pytest.mark.thorough
@settings(max_examples=scaled(60))
@given(before=beginnings, history=happenings)
async def test_whatever_happens_statistics_are_those_of_the_calls(
    pool: Pool, before: list[Happening], history: list[Happening]
) -> None:
    twins = Twins(pool)
    for each in (*before, Summed(100, 0), *history):
        await twins.happens(each)
    await twins.look(TimeRange())
    await twins.happens(Summed(100, 0))
    await twins.look(TimeRange())
