"""A store that obeys the test, and a spool in a directory of the test's own."""

from pathlib import Path

import pytest

from tests.recorder.stores import CommandedStore
from tracer.recorder import Spool


@pytest.fixture
def store() -> CommandedStore:
    return CommandedStore()


@pytest.fixture
def spool_path(tmp_path: Path) -> Path:
    return tmp_path / "spool" / "events.db"


@pytest.fixture
def spool(spool_path: Path) -> Spool:
    return Spool(spool_path)
