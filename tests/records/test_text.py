"""The escape for text that Postgres and UTF-8 cannot hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracer.text import (
    escape,
    nests_too_deep,
    preview,
    storable,
    unescape,
    without_deep_values,
)

# By default, Hypothesis generates no surrogates.
hostile = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from("\0\u241b\ud800\udfff0248bd\u241b"),
    )
)


@given(hostile)
def test_unescaping_reverses_escaping(text: str) -> None:
    assert unescape(escape(text)) == text


@given(hostile)
def test_stored_text_contains_neither_nul_nor_surrogates(text: str) -> None:
    for stored in (escape(text), storable(text)):
        assert "\0" not in stored
        stored.encode()


@given(hostile)
def test_making_text_storable_twice_changes_nothing(text: str) -> None:
    once = storable(text)

    assert storable(once) == once
    assert storable(escape(text)) == escape(text)


def test_escaped_text_has_the_form_that_the_protocol_defines() -> None:
    stored = {
        "": "",
        "plain": "plain",
        "血压": "血压",
        "a\0b": "a␛0000b",
        "\ud83d": "␛d83d",
        "␛0000": "␛241b0000",
        "␛": "␛",
        "␛zzzz": "␛zzzz",
        r"\u0000": r"\u0000",
    }
    assert {text: escape(text) for text in stored} == stored


@given(st.text(), st.integers(min_value=1, max_value=64))
def test_preview_is_the_start_of_the_text_within_the_limit(text: str, limit: int) -> None:
    start = preview(text, limit)

    assert text.startswith(start)
    assert len(start.encode()) <= limit
    assert start == text or len(text.encode()) > limit


def test_a_preview_does_not_split_an_escape() -> None:
    assert preview("abcd␛0000", 9) == "abcd"


def test_json_depth_ignores_brackets_in_strings() -> None:
    too_deep = {
        "[" * 10 + "]" * 10: False,
        "[" * 11 + "]" * 11: True,
        "[" * 9 + "[],[]" + "]" * 9: False,
        "[" + "[]," * 100 + "[]]": False,
        '["' + "[" * 100 + '"]': False,
        '["\\"' + "[" * 100 + '"]': False,
        '{"a":' * 11 + "1" + "}" * 11: True,
        "[" * 1000: True,
        '"' + "[" * 1000: False,
        "": False,
    }
    failures = [
        f"{text[:20]} … ({len(text)} characters): expected {expected}"
        for text, expected in too_deep.items()
        if nests_too_deep(text, limit=10) is not expected
    ]
    assert failures == []


def test_values_deeper_than_the_limit_become_null() -> None:
    for text, expected in (
        ('{"a": [1, [2]], "b": "[[["}', '{"a": [1, null], "b": "[[["}'),
        ("[[[1]], [[2], {}]]", "[[null], [null, null]]"),
        ("[[[1]]", "[[null]"),
        ("[[[[", "[[null"),
        ("]]] 1", "]]] 1"),
    ):
        assert without_deep_values(text, 2) == expected
