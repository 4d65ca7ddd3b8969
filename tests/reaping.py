"""A reaper at a time that a test chooses."""

from __future__ import annotations

from datetime import datetime

from tracer.records import DEFAULT_TERMS
from tracer.storage.postgres import Pool
from tracer.storage.postgres.jobs import Reaper


async def forget_checks(pool: Pool) -> None:
    """Let the next pass of a reaper be the first one."""
    async with pool.connection() as connection:
        await connection.execute("UPDATE lease_check SET served_at = NULL, served_since = NULL")


async def expire_leases(pool: Pool, now: datetime) -> None:
    """Let a reaper pass that was never away."""
    async with pool.connection() as connection:
        await connection.execute(
            "UPDATE lease_check SET served_at = %s, served_since = '-infinity'", [now]
        )
    await Reaper(pool, DEFAULT_TERMS, clock=lambda: now).run_once()
