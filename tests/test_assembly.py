"""The path of the spool depends on the database, not on the credentials."""

from __future__ import annotations

from pathlib import Path

from tracer.recorder.spool import spool_path

HOME = Path("home")
URL = "postgresql://tracer:old@db:5432/traces"


def test_the_spool_path_is_the_same_after_a_change_of_credentials() -> None:
    urls = (
        "postgresql://tracer:new@db:5432/traces",
        "postgresql://other:a%40b@db:5432/traces",
        "postgresql://db:5432/traces",
    )
    assert [url for url in urls if spool_path(HOME, url) != spool_path(HOME, URL)] == []


def test_each_database_has_its_own_spool_path() -> None:
    urls = (
        "postgresql://tracer:old@db:5432/other",
        "postgresql://tracer:old@elsewhere:5432/traces",
        "postgresql://tracer:old@db:5433/traces",
        "postgresql://tracer@/traces?host=/run/one",
        "http://db:8420",
    )
    assert [url for url in urls if spool_path(HOME, url) == spool_path(HOME, URL)] == []
