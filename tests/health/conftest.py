"""Fixtures of the health application's tests."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from health.diary import Diary
from tests.health.nurse import CallNurse, nurse_over
from tests.stepping import stepping_clock
from tracer.runtime import Surroundings


@pytest.fixture
def diary() -> Diary:
    """A closed diary whose clock steps from 8.30 on."""
    return Diary(stepping_clock(datetime(2026, 3, 2, 8, 30, tzinfo=UTC)))


@pytest.fixture
async def opened(diary: Diary, database_url: str) -> AsyncIterator[Diary]:
    """The diary, open."""
    async with diary.open(Surroundings(database_url)):
        yield diary


@pytest.fixture
async def call_nurse(diary: Diary, tmp_path: Path) -> AsyncIterator[CallNurse]:
    """Calls the nurse's tools over the diary."""
    async with nurse_over(diary, tmp_path) as call:
        yield call
