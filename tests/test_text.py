"""The escape for text that Postgres and UTF-8 cannot hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.text import escape, nests_too_deep, preview, storable, unescape

# Hypothesis leaves surrogates out unless told otherwise.
hostile = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from("\0\u241b\ud800\udfff0248bd\u241b"),
    )
)


@given(hostile)
def test_unescaping_gives_back_what_was_escaped(text: str) -> None:
    assert unescape(escape(text)) == text


@given(hostile)
def test_stored_text_has_neither_nul_nor_surrogates(text: str) -> None:
    for stored in (escape(text), storable(text)):
        assert "\0" not in stored
        stored.encode()


@given(hostile)
def test_making_text_storable_twice_changes_nothing(text: str) -> None:
    once = storable(text)

    assert storable(once) == once
    assert storable(escape(text)) == escape(text)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", ""),
        ("plain", "plain"),
        ("血压", "血压"),
        ("a\0b", "a␛0000b"),
        ("\ud83d", "␛d83d"),
        ("␛0000", "␛241b0000"),
        ("␛", "␛"),
        ("␛zzzz", "␛zzzz"),
        (r"\u0000", r"\u0000"),
    ],
)
def test_the_stored_form_is_the_one_that_the_protocol_says(text: str, stored: str) -> None:
    assert escape(text) == stored


@given(st.text(), st.integers(min_value=1, max_value=64))
def test_a_preview_is_a_beginning_that_fits(text: str, limit: int) -> None:
    start = preview(text, limit)

    assert text.startswith(start)
    assert len(start.encode()) <= limit
    assert start == text or len(text.encode()) > limit


def test_a_preview_cuts_no_escape_in_two() -> None:
    assert preview("abcd␛0000", 9) == "abcd"


@pytest.mark.parametrize(
    ("text", "too_deep"),
    [
        ("[" * 10 + "]" * 10, False),
        ("[" * 11 + "]" * 11, True),
        ("[" + "[]," * 100 + "[]]", False),
        ('["' + "[" * 100 + '"]', False),
        ('["\\"' + "[" * 100 + '"]', False),
        ('{"a":' * 11 + "1" + "}" * 11, True),
        ("[" * 1000, True),
        ('"' + "[" * 1000, False),
        ("", False),
    ],
)
def test_the_depth_of_json_is_counted_outside_strings(text: str, too_deep: bool) -> None:
    assert nests_too_deep(text, limit=10) is too_deep
