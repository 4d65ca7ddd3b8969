"""Changes to a session's state: what each does, and what it refuses."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import StateConflict
from tracer.sessions import (
    MAX_STATE_BYTES,
    Change,
    apply,
    changes_json,
    state_from,
    state_text,
)

KEYS = st.sampled_from(["a", "b", "字", "", "\0", "\ud800"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates included, two in a row as well.
    | st.text(st.characters(codec=None), max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=6,
)
STATES = st.dictionaries(KEYS, VALUES, max_size=3)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)
CHANGES = st.one_of(
    st.builds(Change, st.just("set"), PATHS, VALUES),
    st.builds(Change, st.just("remove"), PATHS),
    st.builds(Change, st.just("increment"), PATHS, st.integers(-3, 3)),
    st.builds(Change, st.just("append"), PATHS, VALUES),
    st.builds(Change, st.just("compare_and_set"), PATHS, VALUES, VALUES),
)


def outcome(state: dict[str, Any], *parts: list[Change]) -> object:
    try:
        for part in parts:
            state = apply(state, part)
    except StateConflict as conflict:
        return str(conflict)
    return state


@given(STATES, st.lists(CHANGES, max_size=5), st.integers(0, 5))
def test_changes_come_to_the_same_all_at_once_and_in_two_parts(
    state: dict[str, Any], changes: list[Change], cut: int
) -> None:
    assert outcome(state, changes[:cut], changes[cut:]) == outcome(state, changes)


@given(STATES, st.lists(CHANGES, max_size=5))
def test_what_is_changed_stays_as_it_was_and_the_changed_state_can_be_kept(
    state: dict[str, Any], changes: list[Change]
) -> None:
    before = copy.deepcopy((state, changes))
    after = outcome(state, changes)

    assert (state, changes) == before
    if isinstance(after, dict):
        assert state_from(state_text(after)) == after


@given(st.lists(CHANGES, max_size=5))
def test_changes_are_recorded_as_a_json_array_that_says_all_of_them(changes: list[Change]) -> None:
    said = json.loads(changes_json(changes))

    assert [Change(each["op"], tuple(each["path"]), each["value"]) for each in said] == [
        Change(change.op, change.path, change.value) for change in changes
    ]
    assert [each.get("expected") for each in said] == [
        change.expected if change.op == "compare_and_set" else None for change in changes
    ]


def test_a_change_is_recorded_in_few_words() -> None:
    changes = [Change("increment", ("visits",), 1), Change("compare_and_set", ("a", "字"), "b")]

    assert changes_json(changes) == (
        '[{"op":"increment","path":["visits"],"value":1},'
        '{"op":"compare_and_set","path":["a","字"],"value":"b","expected":null}]'
    )


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (Change("set", ("new", "deep"), 1), {"new": {"deep": 1}}),
        (Change("set", ("null", "deep"), 1), {"null": {"deep": 1}}),
        (Change("set", ("object",), None), {"object": None}),
        (Change("increment", ("number",), 0.5), {"number": 2.5}),
        (Change("increment", ("new", "deep"), -2), {"new": {"deep": -2}}),
        (Change("append", ("list",), [2]), {"list": [1, [2]]}),
        (Change("append", ("new",), 1), {"new": [1]}),
        (Change("remove", ("object", "key")), {"object": {}}),
        (Change("remove", ("new", "deep")), {}),
        (Change("compare_and_set", ("number",), "x", 2.0), {"number": "x"}),
        (Change("compare_and_set", ("new", "deep"), 1), {"new": {"deep": 1}}),
    ],
)
def test_a_change_does_what_it_says_and_makes_what_is_missing(
    change: Change, after: dict[str, Any]
) -> None:
    state = {"object": {"key": True}, "number": 2, "list": [1], "null": None}

    assert apply(state, [change]) == state | after


@pytest.mark.parametrize(
    "change",
    [
        Change("set", ("text", "deep"), 1),
        Change("remove", ("list", "0")),
        Change("increment", ("text",), 1),
        Change("increment", ("flag",), 1),
        Change("increment", ("large",), 1e308),
        Change("increment", ("huge",), 0.5),
        Change("append", ("text",), "more"),
        Change("append", ("object",), 1),
        Change("compare_and_set", ("flag",), 2, 1),
        Change("compare_and_set", ("object",), 2, {"key": 1}),
        Change("compare_and_set", ("list",), 2, [1, 1]),
        Change("compare_and_set", ("text",), 2, None),
        Change("compare_and_set", ("gone",), 2, "secret"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_by_its_path_without_a_value(change: Change) -> None:
    state = {
        "object": {"key": True},
        "flag": True,
        "text": "secret",
        "list": [1],
        "large": 1e308,
        "huge": 10**400,
    }

    with pytest.raises(StateConflict, match=repr(change.path[0])[:-1]) as refusal:
        apply(state, [Change("set", ("before",), 1), change])

    assert "before" not in state
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), 1),
        ("text", 1),
        (("a", 1), 1),
        (("a",), float("nan")),
        (("a",), object()),
        (("a",), {"a": {1, 2}}),
        (("a",), json.loads("[" * 101 + "]" * 101)),
    ],
)
def test_what_can_be_no_change_is_refused_where_it_is_made(path: Any, value: object) -> None:
    with pytest.raises(ValueError, match=r"keys|JSON"):
        Change("set", path, value)


@pytest.mark.parametrize("value", ["1", None, True])
def test_what_is_added_has_to_be_a_number(value: object) -> None:
    with pytest.raises(ValueError, match="number"):
        Change("increment", ("a",), value)


def test_a_change_keeps_what_it_was_given_and_not_what_became_of_that() -> None:
    value: dict[str, object] = {"list": (1, 2)}
    change = Change("set", ("a",), value)
    value["list"] = ()

    assert apply({}, [change]) == {"a": {"list": [1, 2]}}


def test_a_state_has_its_bounds() -> None:
    room = MAX_STATE_BYTES - len('{"a":""}')
    assert len(state_text({"a": "x" * room})) == MAX_STATE_BYTES
    too_deep = apply({}, [Change("set", ("a",) * 101, 1)])
    for state, said in (
        ({"a": "x" * (room + 1)}, "room"),
        ({"a": "字" * (room // 2)}, "room"),
        (too_deep, "deep"),
        ({"a": object()}, "JSON"),
    ):
        with pytest.raises(StateConflict, match=said):
            state_text(state)
