"""The flag of stored text that allows a view to cast it to JSON, compared with Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import scaled
from tracer.storage.postgres.schema.castable_json import fits_jsonb

_PARTS = (
    *'019-.eE+"\\[]{}:, a\n',
    *("u0000", r"\u0000", r"\\", r"\ud800", r"\udc00", r"\"", '"a":', "null", "true", "␛0000"),
    *("0" * 200, "1" * 309, "e16383", "e-16383", "e-16384", "e131071", "e131072", "e999999"),
)

_numbers = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.sampled_from(["0", "1", "12", "00", "1" * 309, "7" + "0" * 131_071, "7" + "0" * 131_072]),
    st.sampled_from(["", ".0", ".5", "." + "0" * 16_382 + "1", "." + "3" * 16_384]),
    st.just("")
    | st.builds("{}{}".format, st.sampled_from(["e", "E-", "e+00"]), st.integers(0, 999_999_999))
    | st.builds("e{}".format, st.integers(2**30) | st.integers(max_value=-(2**30)))
    # Around the limits of `numeric`.
    | st.builds("e{}".format, st.integers(-16_390, -16_370) | st.integers(131_060, 131_080)),
)

_texts = (
    st.lists(st.sampled_from(_PARTS), max_size=9).map("".join)
    | _numbers
    | st.builds('{{"a": [{}, "1e999999"]}}'.format, _numbers)
)


@pytest.fixture(scope="module")
def connection(postgres_server_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server_url, autocommit=True) as connection:
        yield connection


@settings(max_examples=scaled(150))
@given(st.lists(_texts, min_size=50, max_size=50))
def test_castable_json_flag_is_true_exactly_if_postgres_can_cast_the_text(
    connection: psycopg.Connection, texts: list[str]
) -> None:
    query = "SELECT text, pg_input_is_valid(text, 'jsonb') FROM unnest(%s::text[]) AS text"
    for text, is_valid in connection.execute(query, [texts]):
        assert fits_jsonb(text) == is_valid, text


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("[1e400" + ',"\\' * 330_000, False),
        ("[1e400" + "1e" * 450_000, False),
        ("0" * 1_000_000, False),
        (("1" * 198 + " ") * 5_000, False),
        ("\\" * 999_000 + r"\u0000", False),
        ("[1e400" + ",1" * 490_000 + "]", True),
        ("[1e400" + ",1e100000" * 110_000 + "]", True),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_castable_json_check_of_a_hostile_megabyte_takes_linear_time(text: str, fits: bool) -> None:
    # Without an assertion about time: in quadratic time the test does not end.
    assert fits_jsonb(text) == fits
