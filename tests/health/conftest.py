"""Fixtures of the health application's tests."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from health.diary import Diary
from tests.health.nurse import CallNurse, nurse_over
from tracer.clock import stepping_clock


@pytest.fixture
def diary() -> Diary:
    """A closed diary whose clock steps from 8.30 on."""
    return Diary(stepping_clock(datetime(2026, 3, 2, 8, 30, tzinfo=UTC)))


@pytest.fixture
async def opened(diary: Diary, database_url: str) -> AsyncIterator[Diary]:
    """The diary, open."""
    async with diary.open(database_url):
        yield diary


@pytest.fixture
def call_nurse(diary: Diary) -> CallNurse:
    """Calls the nurse's tools over the diary."""
    return nurse_over(diary)
