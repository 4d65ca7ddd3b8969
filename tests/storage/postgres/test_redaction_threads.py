"""Large writes are redacted in threads, which the store's timeout does not limit."""

from __future__ import annotations

import asyncio

from tests.sample_runs import sample_run
from tracer.errors import StoreUnavailable
from tracer.records.events import PlanStarted
from tracer.storage.postgres import Pool, ProjectPool, WriterOptions, postgres_writer
from tracer.storage.postgres.reader import PostgresReader


async def test_text_full_of_secrets_is_stored_despite_a_short_store_timeout(pool: Pool) -> None:
    """This text took 2.7 seconds of processor time, more than the timeout of a second."""
    started = next(each for each in sample_run().events if isinstance(each, PlanStarted))
    text = "password=xyz " * (3_000_000 // 13)
    project = ProjectPool(pool)
    writer = postgres_writer(project, WriterOptions(write_seconds=1.0))

    async with asyncio.timeout(60):
        while True:
            try:
                answer = await writer.write([started.model_copy(update={"user_request": text})])
                break
            except StoreUnavailable:  # the machine is busy, or the limit includes the redaction
                continue

    assert answer.refused == []
    plan = (await PostgresReader(project).read_plan(started.plan_id)).plan
    assert plan.user_request == f"[masked: payload of {len(text)} bytes]"
    assert plan.masked == ["userRequest"]
