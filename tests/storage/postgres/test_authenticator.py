"""Concurrent look-ups of one key share one query."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.citus_databases import on_one_postgres
from tests.storage.postgres.lock_waits import until_waiting
from tracer.errors import NotIdentified
from tracer.records import DEFAULT_PROJECT_ID
from tracer.records.access import Scope
from tracer.storage.postgres import Pool, ProjectPool, open_pool
from tracer.storage.postgres.keys import ApiKeys, Authenticator


async def test_concurrent_requests_share_the_check_for_existing_keys(
    pool: Pool, asked: list[str]
) -> None:
    authenticator = Authenticator(pool)
    answers = await asyncio.gather(*(authenticator.are_keys_needed() for _ in range(20)))
    assert set(answers) == {False}
    assert len(asked) == 1


async def test_concurrent_requests_share_one_key_lookup(pool: Pool, asked: list[str]) -> None:
    authenticator = Authenticator(pool)
    answers = await asyncio.gather(
        *(authenticator.by_key("no key") for _ in range(20)), return_exceptions=True
    )
    assert {type(each) for each in answers} == {NotIdentified}
    assert len(asked) == 1


async def test_cancelled_key_lookup_does_not_cancel_other_waiters(
    pool: Pool, asked: list[str]
) -> None:
    authenticator = Authenticator(pool)
    hasty = asyncio.create_task(authenticator.are_keys_needed())
    patient = asyncio.create_task(authenticator.are_keys_needed())
    await asyncio.sleep(0)
    hasty.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hasty
    assert not await patient
    assert len(asked) == 1


async def test_lookup_after_a_revocation_ignores_earlier_lookups(
    pool: Pool, asked: list[str]
) -> None:
    authenticator = Authenticator(pool)
    before = asyncio.create_task(authenticator.by_key("no key"))
    await asyncio.sleep(0)
    authenticator.forget()
    after = asyncio.create_task(authenticator.by_key("no key"))
    answers = await asyncio.gather(before, after, return_exceptions=True)
    assert [type(each) for each in answers] == [NotIdentified, NotIdentified]
    assert len(asked) == 2


LOCK = 7

# A lookup joins `project`. With this view it waits for the lock after it has read `sign_in`.
SLOW_PROJECT = f"""
ALTER TABLE project RENAME TO the_project;
CREATE VIEW project AS SELECT * FROM the_project
WHERE pg_advisory_xact_lock_shared({LOCK})::text IS NOT NULL"""


@on_one_postgres
@pytest.mark.parametrize("ending", ["sign_out", "forget"])
async def test_lookup_started_before_a_sign_out_is_not_cached(
    database_url: str, ending: str
) -> None:
    async with (
        asyncio.timeout(120),
        open_pool(database_url) as pool,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
    ):
        new = await ApiKeys(ProjectPool(pool, DEFAULT_PROJECT_ID)).create("reads", [Scope.READ])
        authenticator = Authenticator(pool, known_seconds=3_600)
        secret, _ = await authenticator.sign_in(new.secret)
        await other.execute(SLOW_PROJECT)
        await other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        before = asyncio.create_task(authenticator.by_sign_in(secret))
        await until_waiting(database_url, 1)

        if ending == "sign_out":
            await authenticator.sign_out(secret)
        else:
            await other.execute("UPDATE api_key SET revoked_at = now()")
            authenticator.forget()
        after = asyncio.create_task(authenticator.by_sign_in(secret))
        await asyncio.sleep(0)  # it asks, or joins the lookup that is in flight
        await other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])

        assert (await before).key_id == new.key.key_id
        with pytest.raises(NotIdentified):
            await after
        with pytest.raises(NotIdentified):
            await authenticator.by_sign_in(secret)
