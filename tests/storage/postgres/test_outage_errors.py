"""Which errors of PostgreSQL count as an outage of the store."""

from __future__ import annotations

import pytest
from psycopg import errors

from tracer.errors import StoreUnavailable
from tracer.storage.postgres.pool import store_errors

OUTAGES = (
    *("53000", "53100", "53200", "53300", "53400", "57P01", "57P02", "57P03", "57P05", "57014"),
    *("08000", "08003", "08006", "25006", "25P03", "25P04", "58030", "55P03"),
)


def raised_for(code: str) -> type[Exception]:
    """Return the type of the error that replaces the one with an SQLSTATE."""
    try:
        with store_errors():
            raise errors.lookup(code)()
    except Exception as error:
        return type(error)


def test_server_side_failures_count_as_an_outage() -> None:
    failures = [
        f"{code}: expected StoreUnavailable, got {found.__name__}"
        for code in OUTAGES
        if (found := raised_for(code)) is not StoreUnavailable
    ]

    assert failures == []


def test_unique_violation_is_no_outage() -> None:
    with pytest.raises(errors.UniqueViolation), store_errors():
        raise errors.UniqueViolation
