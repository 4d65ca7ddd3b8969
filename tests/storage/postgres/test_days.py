"""Figures of days: they equal a query over the runs after any history."""

from __future__ import annotations

from tests.projecting import roll_up
from tests.sample_runs import sample_run
from tracer.records.pages import OverviewFilter, TimeRange
from tracer.storage.postgres import Pool, PostgresWriter
from tracer.storage.postgres.reader import PostgresReader

ALL = OverviewFilter()


async def test_overview_counts_runs_before_and_after_the_roll_up(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    await writer.write(sample_run().events)

    before = await reader.read_overview(TimeRange(), ALL)
    spend = await reader.read_spend(TimeRange(), "model")
    await roll_up(pool)
    after = await reader.read_overview(TimeRange(), ALL)

    assert before == after
    # Not a Decimal, which is a string in JSON.
    assert isinstance(after.total.input_tokens, int)
    assert spend == await reader.read_spend(TimeRange(), "model")
    assert before.total.runs == 1
