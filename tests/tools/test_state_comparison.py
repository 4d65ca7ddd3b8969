"""Assignments to the session state and to its nested values become operations."""

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
from tracer.tools import SessionState, tool

PROFILES: dict[str, Any] = {
    "profiles": {"123": {"name": "Jane", "tags": ["new"]}},
    "log": [{"who": "Jane"}, [1]],
}


def state_of(value: dict[str, Any] = PROFILES) -> SessionState:
    return SessionState(copy.deepcopy(value))


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
def test_recorded_changes_equal_the_changes_of_plain_data(
    initial: dict[str, Any], steps: list[tuple[list[str], Operation, Operation]]
) -> None:
    state = state_of(initial)

    for path, on_object, on_list in steps:
        part = part_of(state, path)
        outcome_of(on_list if isinstance(part, list) else on_object, part)
        # Values that two keys share are not recorded as shared.
        plain = json.loads(json.dumps(state))
        assert apply(initial, state.changes) == plain

    state.increment("\0added")
    assert apply(initial, state.changes) == {**json.loads(json.dumps(state))}


@settings(deadline=None)
@given(STATES, STATES, st.lists(st.tuples(st.lists(KEYS, max_size=3), OBJECT_OPERATIONS)))
def test_failed_attempt_restores_the_state(
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
    assert state.changes == changes
    state["after"] = {}
    assert apply(initial, state.changes) == before | {"after": {}}


def test_copies_of_the_state_are_plain_dicts() -> None:
    state = state_of()

    for made in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert made == PROFILES
        assert type(made) is dict


def test_comparison_records_only_the_deepest_values_that_differ() -> None:
    state = state_of()
    state["log"] += ["more"]
    state["profiles"] |= {"7": {}}
    state["profiles"]["123"]["tags"].insert(0, "first")
    state["profiles"]["123"]["name"] = "Jane"
    state["new"] = {"a": {"b": 1}}

    assert [(each.op, each.path) for each in state.changes] == [
        ("set", ("profiles", "123", "tags")),
        ("set", ("profiles", "7")),
        ("append", ("log",)),
        ("set", ("new",)),
    ]


def test_changes_by_path_are_visible_in_nested_values() -> None:
    state = state_of({"points": {"ann": 1}})
    points = state["points"]
    points["tom"] = 1
    state.increment(("points", "ann"))
    state.append(("points", "log"), {"n": 1})
    log = points["log"]
    state.append(("points", "log"), {"n": 2})
    state.set(("points", "bob", "best"), 3)
    state.remove(("points", "tom"))
    state.remove(("nothing", "here"))

    assert points == {"ann": 2, "log": [{"n": 1}, {"n": 2}], "bob": {"best": 3}}
    assert log is points["log"]
    points["bob"]["best"] = 4
    assert [each.op for each in state.changes] == [
        *("set", "increment", "append", "append", "set", "remove", "remove", "set")
    ]
    assert apply({"points": {"ann": 1}}, state.changes) == {"points": points}


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), object()])
async def test_call_that_assigns_a_value_that_is_not_json_fails(
    tmp_path: Path, value: object
) -> None:
    @tool
    async def change(state: SessionState) -> None:
        state["before"] = 1
        state["value"] = value

    async with service(tmp_path, change) as on:
        outcome = await on.tools.call("change", thread_id="s")
        state = await kept(on.tools, "s")

    assert outcome.reason == "tool_error"
    assert "must be JSON" in outcome.for_model
    assert state == {}


async def test_parallel_calls_that_change_nested_values_lose_nothing(tmp_path: Path) -> None:
    everybody = asyncio.Barrier(5)

    @tool
    async def create(state: SessionState, number: int) -> int:
        profiles = state["profiles"]
        await everybody.wait()
        profiles[str(number)] = {"tags": []}
        profiles[str(number)]["tags"].append("new")
        state["log"].append(number)
        return len(profiles)

    async with service(tmp_path, create, initial_state={"log": [], "profiles": {}}) as on:
        outcomes = await asyncio.gather(
            *(on.tools.call("create", {"number": n}, thread_id="s") for n in range(5))
        )
        state = await kept(on.tools, "s")

    assert [each.result for each in outcomes] == ["1"] * 5
    assert state["profiles"] == {str(n): {"tags": ["new"]} for n in range(5)}
    assert sorted(state["log"]) == [0, 1, 2, 3, 4]


async def test_state_changed_after_its_call_has_ended_is_not_stored(tmp_path: Path) -> None:
    states: list[SessionState] = []

    @tool
    async def read(state: SessionState) -> Any:
        states.append(state)
        return state["profiles"]["123"]

    async with service(tmp_path, read, initial_state=PROFILES) as on:
        outcome = await on.tools.call("read", thread_id="s")
        [state] = states
        state["profiles"]["123"]["name"] = "Tom"
        with pytest.raises(StateConflict, match="after its call had ended"):
            state.increment("visits")

        assert await kept(on.tools, "s") == PROFILES
    assert outcome.result == '{"name":"Jane","tags":["new"]}'
    assert state.changes == ()
