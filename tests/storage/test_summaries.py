"""Old hours of tool calls are summed up, and statistics are those of the calls all the same."""

from __future__ import annotations

from datetime import timedelta

from tests.storage.deletions import rows
from tests.store_contract.moments import Moments
from tracer.clock import utc_now
from tracer.storage.engine import Pool
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool
from tracer.storage.summariser import turns
from tracer.tool_stats import TimeRange


async def test_it(pool: Pool, writer: PostgresWriter, reader: PostgresReader) -> None:
    run = Moments()
    at = utc_now() - timedelta(days=3)
    await writer.write(
        [
            run.call_started().model_copy(update={"at": at}),
            run.call_finished().model_copy(update={"at": at + timedelta(seconds=2)}),
        ]
    )
    print(await rows(pool, "select * from changed_hour"))
    async for each in turns(ProjectPool(pool)):
        print("turn", each)
    print(await rows(pool, "select * from changed_hour"))
    print(await rows(pool, "select * from summed_range"))
    print(await rows(pool, "select * from summed_calls"))
    print(await reader.read_tool_stats(TimeRange()))
    print(await reader.read_tool_stats(TimeRange(at - timedelta(days=4), at + timedelta(days=100))))
    print(
        await reader.read_tool_history(
            "measure", TimeRange(at - timedelta(days=4), at + timedelta(days=100))
        )
    )
