"""Large writes are redacted in threads, which the store's timeout does not limit."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.sample_runs import sample_run
from tracer.errors import StoreUnavailable
from tracer.records.events import PlanStarted
from tracer.redaction.events import MAX_THREADS, in_redaction_thread
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


async def test_cancelled_caller_waits_for_its_redaction_thread() -> None:
    begun, end = threading.Event(), threading.Event()

    def redact() -> None:
        begun.set()
        end.wait(60)

    caller = asyncio.create_task(in_redaction_thread(redact))
    await asyncio.to_thread(begun.wait, 60)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0)
    assert not caller.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_cancelled_caller_leaves_the_redaction_queue_immediately() -> None:
    end, ran = threading.Event(), threading.Event()
    blocking = [asyncio.create_task(in_redaction_thread(end.wait)) for _ in range(MAX_THREADS)]
    queued = asyncio.create_task(in_redaction_thread(ran.set))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    end.set()
    await asyncio.gather(*blocking)
    await in_redaction_thread(lambda: None)
    assert not ran.is_set()


async def test_error_in_a_redaction_thread_is_raised_to_the_caller() -> None:
    def redact() -> None:
        raise ValueError("not redacted")

    with pytest.raises(ValueError, match="not redacted"):
        await in_redaction_thread(redact)
