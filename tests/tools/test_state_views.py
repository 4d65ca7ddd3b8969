"""Views of the session state: dicts and lists whose changes are recorded as operations."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records.test_sessions import KEYS, STATES, VALUES
from tests.tools.service_bench import service
from tests.tools.test_session_state import kept
from tracer.errors import StateConflict
from tracer.records.sessions import apply
from tracer.tools.definition.session_state import SessionState
from tracer.tools.definition.tool import tool

PROFILES: dict[str, Any] = {
    "profiles": {"123": {"name": "Jane", "tags": ["new"]}},
    "log": [{"who": "Jane"}, [1]],
}


def state_of(value: dict[str, Any] = PROFILES) -> SessionState:
    return SessionState(copy.deepcopy(value))


# --- As a dict and a list -----------------------------------------------------------------------

Operation = Callable[[Any], Any]

OBJECT_OPERATIONS = st.one_of(
    st.builds(lambda key, value: lambda it: it.__setitem__(key, value), KEYS, VALUES),
    st.builds(lambda key: lambda it: it.__delitem__(key), KEYS),
    st.builds(lambda new: lambda it: it.update(new), STATES),
    st.builds(lambda new: lambda it: it.update(list(new.items()), a=1), STATES),
    st.builds(lambda new: lambda it: it.__ior__(new) and None, STATES),
    st.builds(lambda key, value: lambda it: it.setdefault(key, value), KEYS, VALUES),
    st.builds(lambda key: lambda it: it.pop(key), KEYS),
    st.builds(lambda key, value: lambda it: it.pop(key, value), KEYS, VALUES),
    st.just(lambda it: it.popitem()),
    st.just(lambda it: it.clear()),
    # These copy a value, swap two, and assign to each key while iterating.
    st.builds(lambda one, other: lambda it: it.__setitem__(one, it[other]), KEYS, KEYS),
    st.builds(lambda one, other: lambda it: swap(it, one, other), KEYS, KEYS),
    st.builds(lambda key, value: lambda it: assign_to_each(it, value), KEYS, VALUES),
)
LIST_OPERATIONS = st.one_of(
    st.builds(lambda value: lambda it: it.append(value), VALUES),
    st.builds(lambda values: lambda it: it.extend(iter(values)), st.lists(VALUES, max_size=3)),
    st.builds(lambda values: lambda it: it.__iadd__(values) and None, st.lists(VALUES)),
    st.just(lambda it: it.extend(it)),
)


def swap(it: Any, one: str, other: str) -> None:
    it[one], it[other] = it[other], it[one]


def assign_to_each(it: Any, value: Any) -> None:
    for key in it:
        it[key] = value


def outcome_of(operation: Operation, it: Any) -> Any:
    try:
        return operation(it)
    except (KeyError, AttributeError, TypeError) as error:
        return type(error)


def part_of(it: Any, path: list[str]) -> Any:
    for key in path:
        if not isinstance(it, dict) or not isinstance(it.get(key), dict | list):
            break
        it = it[key]
    return it


@settings(deadline=None)
@given(
    STATES,
    st.lists(st.tuples(st.lists(KEYS, max_size=3), OBJECT_OPERATIONS, LIST_OPERATIONS), max_size=8),
)
def test_changes_through_state_views_equal_changes_of_plain_data(
    initial: dict[str, Any], steps: list[tuple[list[str], Operation, Operation]]
) -> None:
    plain, state = copy.deepcopy(initial), state_of(initial)

    for path, on_object, on_list in steps:
        expected, actual = part_of(plain, path), part_of(state, path)
        operation = on_list if isinstance(expected, list) else on_object
        # The state stores a copy at each place; plain data would share one value.
        result = outcome_of(operation, expected)
        plain = json.loads(json.dumps(plain))
        assert outcome_of(operation, actual) == result
        assert state == plain
        assert json.dumps(state) == json.dumps(plain)

    assert apply(initial, state.changes) == plain
    assert copy.deepcopy(state) == plain


@settings(deadline=None)
@given(STATES, STATES, st.lists(st.tuples(st.lists(KEYS, max_size=3), OBJECT_OPERATIONS)))
def test_failed_attempt_restores_the_state_and_its_views(
    initial: dict[str, Any], more: dict[str, Any], steps: list[tuple[list[str], Operation]]
) -> None:
    state = state_of(initial)
    state.update(more)
    before, changes = copy.deepcopy(state), state.changes
    for path, operation in steps:
        it = part_of(state, path)
        if isinstance(it, dict):
            outcome_of(operation, it)

    state.restore(changes)

    assert state == before
    assert json.dumps(state) == json.dumps(before)
    state["after"] = {}
    assert apply(initial, state.changes) == before | {"after": {}}


def test_state_views_equal_plain_data_and_their_copies_are_plain() -> None:
    profile = state_of()["profiles"]["123"]

    assert isinstance(profile, dict)
    assert isinstance(profile["tags"], list)
    assert repr(profile) == "{'name': 'Jane', 'tags': ['new']}"
    assert json.dumps(profile) == '{"name": "Jane", "tags": ["new"]}'
    for made in (copy.deepcopy(profile), pickle.loads(pickle.dumps(profile))):
        assert made == profile
        assert (type(made), type(made["tags"])) == (dict, list)
    assert (type(copy.copy(profile)), type(copy.copy(profile["tags"]))) == (dict, list)


def test_state_view_assigned_to_another_key_is_copied() -> None:
    state = state_of()
    profile = state["profiles"]["123"]
    state["latest"] = profile
    profile["name"] = "Ann"

    assert state["latest"]["name"] == "Jane"
    popped = state.pop("latest")
    popped["name"] = "Tom"
    assert type(popped) is dict
    assert state["profiles"]["123"]["name"] == "Ann"


def test_an_augmented_assignment_records_only_what_it_adds() -> None:
    state = state_of()
    state["log"] += ["more"]
    state["profiles"] |= {"7": {}}
    state["profiles"]["123"]["tags"] += []

    assert [(each.op, each.path) for each in state.changes] == [
        ("append", ("log",)),
        ("set", ("profiles", "7")),
    ]


def test_changes_by_path_are_visible_in_existing_state_views() -> None:
    state = state_of({"points": {"ann": 1}})
    points = state["points"]
    state.increment(("points", "ann"))
    state.append(("points", "log"), {"n": 1})
    state.set(("points", "bob", "best"), 3)

    assert points == {"ann": 2, "log": [{"n": 1}], "bob": {"best": 3}}
    points["bob"]["best"] = 4
    assert copy.deepcopy(state) == {"points": points}


def test_change_with_invalid_json_or_key_is_not_applied() -> None:
    state = state_of()
    for key, value in (("set", {1, 2}), (7, "text"), ("nan", float("nan"))):
        with pytest.raises(ValueError, match=r"JSON|key"):
            state.update({"before": 1, key: value})

    assert state == PROFILES
    assert state.changes == ()


# --- Changes without an operation ---------------------------------------------------------------

REFUSED: dict[str, Callable[[list[Any]], Any]] = {
    "item": lambda it: it.__setitem__(0, 1),
    "slice": lambda it: it.__setitem__(slice(0, 1), []),
    "del": lambda it: it.__delitem__(0),
    "insert": lambda it: it.insert(0, 1),
    "pop": lambda it: it.pop(),
    "remove": lambda it: it.remove("new"),
    "clear": lambda it: it.clear(),
    "sort": lambda it: it.sort(key=str),
    "reverse": lambda it: it.reverse(),
    "times": lambda it: it.__imul__(2),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_a_list_change_other_than_appending_is_rejected_with_advice(change: Operation) -> None:
    state = state_of()

    with pytest.raises(TypeError, match=r"'profiles\.123\.tags'.*assign a new one"):
        change(state["profiles"]["123"]["tags"])
    assert state == PROFILES
    assert state.changes == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log[0].update(who="Tom"),
        lambda log: log[1].append(2),
        lambda log: log[1].sort(),
    ],
)
def test_a_change_within_an_item_of_a_list_is_rejected(change: Operation) -> None:
    state = state_of()

    with pytest.raises(TypeError, match="item of a list"):
        change(state["log"])
    assert state == PROFILES


STALE: dict[str, Callable[[SessionState], Any]] = {
    "assigned": lambda state: state.update(profiles={"123": {}}),
    "set": lambda state: state.set(("profiles", "123"), {}),
    "removed": lambda state: state.remove(("profiles", "123")),
    "popped": lambda state: state.pop("profiles"),
    "compared": lambda state: state.compare_and_set("profiles", PROFILES["profiles"], {}),
    "cleared": lambda state: state.clear(),
}


@pytest.mark.parametrize("replace", STALE.values(), ids=STALE)
def test_state_view_of_a_replaced_value_is_read_only(replace: Operation) -> None:
    state = state_of()
    profile = state["profiles"]["123"]
    replace(state)
    before = copy.deepcopy(state)

    assert profile == PROFILES["profiles"]["123"]
    with pytest.raises(StateConflict, match="Read it again"):
        profile["name"] = "Tom"
    with pytest.raises(StateConflict, match="Read it again"):
        profile["tags"].append("x")
    assert state == before


def test_state_view_still_works_after_a_failed_attempt() -> None:
    state = state_of()
    profile, changes = state["profiles"]["123"], state.changes
    profile["name"] = "failed"
    profile["tags"] += ["failed"]
    state["profiles"]["7"] = {}
    state.restore(changes)

    assert state == PROFILES
    profile["name"] = "Ann"
    assert state["profiles"]["123"] == {"name": "Ann", "tags": ["new"]}


# --- In calls -----------------------------------------------------------------------------------


async def test_parallel_calls_that_change_nested_values_lose_nothing(tmp_path: Path) -> None:
    everybody = asyncio.Barrier(5)

    @tool
    async def create(state: SessionState, number: int) -> int:
        profiles = state.setdefault("profiles", {})
        await everybody.wait()
        profiles[str(number)] = {"tags": []}
        profiles[str(number)]["tags"].append("new")
        state.setdefault("log", []).append(number)
        return len(profiles)

    async with service(tmp_path, create) as on:
        outcomes = await asyncio.gather(
            *(on.tools.call("create", {"number": n}, thread_id="s") for n in range(5))
        )
        state = await kept(on.tools, "s")

    assert [each.result for each in outcomes] == ["1"] * 5
    assert state["profiles"] == {str(n): {"tags": ["new"]} for n in range(5)}
    assert sorted(state["log"]) == [0, 1, 2, 3, 4]


async def test_state_view_rejects_changes_after_its_call_has_ended(tmp_path: Path) -> None:
    views: list[Any] = []

    @tool
    async def read(state: SessionState) -> Any:
        views.append(state["profiles"]["123"])
        return views[0]

    async with service(tmp_path, read, initial_state=PROFILES) as on:
        outcome = await on.tools.call("read", thread_id="s")

    assert outcome.result == '{"name":"Jane","tags":["new"]}'
    with pytest.raises(StateConflict, match="after its call had ended"):
        views[0]["name"] = "Tom"
    assert views[0]["name"] == "Jane"
