"""Who asks: found out once for all who ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from tracer.errors import NotIdentified
from tracer.storage.callers import Callers
from tracer.storage.engine import Pool


async def test_requests_of_one_moment_ask_together_whether_keys_are_needed(
    pool: Pool, asked: list[str]
) -> None:
    callers = Callers(pool)
    answers = await asyncio.gather(*(callers.are_keys_needed() for _ in range(20)))
    assert set(answers) == {False}
    assert len(asked) == 1


async def test_requests_of_one_moment_ask_together_whose_a_key_is(
    pool: Pool, asked: list[str]
) -> None:
    callers = Callers(pool)
    answers = await asyncio.gather(
        *(callers.by_key("no key") for _ in range(20)), return_exceptions=True
    )
    assert {type(each) for each in answers} == {NotIdentified}
    assert len(asked) == 1


async def test_who_gives_up_asking_takes_nobody_along(pool: Pool, asked: list[str]) -> None:
    callers = Callers(pool)
    hasty = asyncio.create_task(callers.are_keys_needed())
    patient = asyncio.create_task(callers.are_keys_needed())
    await asyncio.sleep(0)
    hasty.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hasty
    assert not await patient
    assert len(asked) == 1


async def test_who_asks_after_a_key_was_revoked_waits_for_no_older_answer(
    pool: Pool, asked: list[str]
) -> None:
    callers = Callers(pool)
    before = asyncio.create_task(callers.by_key("no key"))
    await asyncio.sleep(0)
    callers.forget()
    after = asyncio.create_task(callers.by_key("no key"))
    answers = await asyncio.gather(before, after, return_exceptions=True)
    assert [type(each) for each in answers] == [NotIdentified, NotIdentified]
    assert len(asked) == 2
