"""Plugging parts together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracer.recorder.spool import spool_path

HOME = Path("home")
URL = "postgresql://tracer:old@db:5432/traces"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://tracer:new@db:5432/traces",
        "postgresql://other:a%40b@db:5432/traces",
        "postgresql://db:5432/traces",
    ],
)
def test_events_that_wait_are_found_again_after_the_password_changed(url: str) -> None:
    assert spool_path(HOME, url) == spool_path(HOME, URL)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://tracer:old@db:5432/other",
        "postgresql://tracer:old@elsewhere:5432/traces",
        "postgresql://tracer:old@db:5433/traces",
        "postgresql://tracer@/traces?host=/run/one",
        "http://db:8420",
    ],
)
def test_events_for_one_database_are_never_drained_into_another(url: str) -> None:
    assert spool_path(HOME, url) != spool_path(HOME, URL)
