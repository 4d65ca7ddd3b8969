"""Changes to the state of a session: their effects, and the changes that are rejected."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import StateConflict
from tracer.records.sessions import (
    MAX_STATE_BYTES,
    StateChange,
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
    # Including surrogates, also two in a row.
    | st.text(st.characters(codec=None), max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=6,
)
STATES = st.dictionaries(KEYS, VALUES, max_size=3)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)
CHANGES = st.one_of(
    st.builds(StateChange, st.just("set"), PATHS, VALUES),
    st.builds(StateChange, st.just("remove"), PATHS),
    st.builds(StateChange, st.just("increment"), PATHS, st.integers(-3, 3)),
    st.builds(StateChange, st.just("append"), PATHS, VALUES),
    st.builds(StateChange, st.just("compare_and_set"), PATHS, VALUES, VALUES),
)


def outcome(state: dict[str, Any], *parts: list[StateChange]) -> object:
    try:
        for part in parts:
            state = apply(state, part)
    except StateConflict as conflict:
        return str(conflict)
    return state


@given(STATES, st.lists(CHANGES, max_size=5), st.integers(0, 5))
def test_state_changes_applied_together_equal_those_applied_in_two_steps(
    state: dict[str, Any], changes: list[StateChange], cut: int
) -> None:
    assert outcome(state, changes[:cut], changes[cut:]) == outcome(state, changes)


@given(STATES, st.lists(CHANGES, max_size=5))
def test_applying_changes_mutates_nothing_and_the_result_can_be_stored(
    state: dict[str, Any], changes: list[StateChange]
) -> None:
    before = copy.deepcopy((state, changes))
    after = outcome(state, changes)

    assert (state, changes) == before
    if isinstance(after, dict):
        assert state_from(state_text(after)) == after


@given(st.lists(CHANGES, max_size=5))
def test_state_changes_are_recorded_as_a_json_array(changes: list[StateChange]) -> None:
    recorded = json.loads(changes_json(changes))

    assert [StateChange(each["op"], tuple(each["path"]), each["value"]) for each in recorded] == [
        StateChange(change.op, change.path, change.value) for change in changes
    ]
    assert [each.get("expected") for each in recorded] == [
        change.expected if change.op == "compare_and_set" else None for change in changes
    ]


def test_state_change_is_recorded_as_compact_json() -> None:
    changes = [
        StateChange("increment", ("visits",), 1),
        StateChange("compare_and_set", ("a", "字"), "b"),
    ]

    assert changes_json(changes) == (
        '[{"op":"increment","path":["visits"],"value":1},'
        '{"op":"compare_and_set","path":["a","字"],"value":"b","expected":null}]'
    )


def test_state_changes_apply_and_create_missing_objects() -> None:
    before = {"object": {"key": True}, "number": 2, "list": [1], "null": None}
    table: list[tuple[StateChange, dict[str, Any]]] = [
        (StateChange("set", ("new", "deep"), 1), {"new": {"deep": 1}}),
        (StateChange("set", ("null", "deep"), 1), {"null": {"deep": 1}}),
        (StateChange("set", ("object",), None), {"object": None}),
        (StateChange("increment", ("number",), 0.5), {"number": 2.5}),
        (StateChange("increment", ("new", "deep"), -2), {"new": {"deep": -2}}),
        (StateChange("append", ("list",), [2]), {"list": [1, [2]]}),
        (StateChange("append", ("new",), 1), {"new": [1]}),
        (StateChange("remove", ("object", "key")), {"object": {}}),
        (StateChange("remove", ("new", "deep")), {}),
        (StateChange("compare_and_set", ("number",), "x", 2.0), {"number": "x"}),
        (StateChange("compare_and_set", ("new", "deep"), 1), {"new": {"deep": 1}}),
    ]
    failures = [
        f"{change}: expected {before | after}, got {actual}"
        for change, after in table
        if (actual := outcome(before, [change])) != before | after
    ]
    assert failures == []


CONFLICTING = [
    StateChange("set", ("text", "deep"), 1),
    StateChange("remove", ("list", "0")),
    StateChange("increment", ("text",), 1),
    StateChange("increment", ("flag",), 1),
    StateChange("increment", ("large",), 1e308),
    StateChange("increment", ("huge",), 0.5),
    StateChange("append", ("text",), "more"),
    StateChange("append", ("object",), 1),
    StateChange("compare_and_set", ("flag",), 2, 1),
    StateChange("compare_and_set", ("object",), 2, {"key": 1}),
    StateChange("compare_and_set", ("list",), 2, [1, 1]),
    StateChange("compare_and_set", ("text",), 2, None),
    StateChange("compare_and_set", ("gone",), 2, "secret"),
]
"""Changes that do not fit the state of the next test."""


def test_state_conflict_names_the_path_without_values_and_changes_nothing() -> None:
    state = {
        "object": {"key": True},
        "flag": True,
        "text": "secret",
        "list": [1],
        "large": 1e308,
        "huge": 10**400,
    }

    results = [
        (each, outcome(state, [StateChange("set", ("before",), 1), each])) for each in CONFLICTING
    ]
    failures = [
        f"{change}: {result}"
        for change, result in results
        if not isinstance(result, str)
        or repr(change.path[0])[:-1] not in result
        or "secret" in result
    ]
    assert failures == []
    assert "before" not in state


def error_of(operation: Any, path: Any, value: object) -> str:
    """Return the error that constructing a change raises."""
    try:
        StateChange(operation, path, value)
    except ValueError as error:
        return str(error)
    return "accepted"


def test_state_change_without_a_valid_path_or_json_value_is_rejected() -> None:
    table: list[tuple[object, object, str]] = [
        ((), 1, "keys"),
        ("text", 1, "keys"),
        (("a", 1), 1, "keys"),
        (("a",), float("nan"), "JSON"),
        (("a",), object(), "JSON"),
        (("a",), {"a": {1, 2}}, "JSON"),
        (("a",), json.loads("[" * 101 + "]" * 101), "JSON"),
    ]
    failures = [
        f"{path!r}, {value!r}: expected an error about {expected}, got {error}"
        for path, value, expected in table
        if expected not in (error := error_of("set", path, value))
    ]
    assert failures == []


def test_state_increment_by_a_value_other_than_a_number_is_rejected() -> None:
    errors = [error_of("increment", ("a",), value) for value in ("1", None, True)]
    assert [error for error in errors if "number" not in error] == []


def test_state_change_keeps_its_value_if_the_original_object_is_mutated() -> None:
    value: dict[str, object] = {"list": (1, 2)}
    change = StateChange("set", ("a",), value)
    value["list"] = ()

    assert apply({}, [change]) == {"a": {"list": [1, 2]}}


def test_session_state_too_large_or_deep_or_not_json_is_rejected() -> None:
    room = MAX_STATE_BYTES - len('{"a":""}')
    assert len(state_text({"a": "x" * room})) == MAX_STATE_BYTES
    too_deep = apply({}, [StateChange("set", ("a",) * 101, 1)])
    for state, reason in (
        ({"a": "x" * (room + 1)}, "must not exceed"),
        ({"a": "字" * (room // 2)}, "must not exceed"),
        (too_deep, "deep"),
        ({"a": object()}, "JSON"),
    ):
        with pytest.raises(StateConflict, match=reason):
            state_text(state)
