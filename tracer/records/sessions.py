"""Session state: data that a conversation keeps from one run to the next.

This module contains pure functions on states, and the interface of stores of states.

A state is a JSON object. Tools and hooks change it by operations (`StateChange`) instead of
returning a changed copy. Parallel calls therefore do not overwrite each other: five parallel
increments add five. Null is equivalent to a missing value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, assert_never
from uuid import UUID

from tracer.errors import StateConflict
from tracer.text import escape, nests_too_deep, preview, unescape

State = dict[str, Any]
"""JSON values by key."""

MAX_STATE_BYTES = 2**20
"""The largest size of a state, as JSON."""

MAX_STATE_DEPTH = 100
"""How deep objects and lists may be nested."""

MAX_SESSION_RUNS = 100
"""How many run ids a session keeps; the oldest are dropped."""

MAX_SESSION_ID_BYTES = 2_000
"""The maximum length of a session's id. The id is part of an index, and an index entry of
PostgreSQL has at most 2,700 bytes."""


@dataclass(frozen=True)
class StateChange:
    """One operation that changes a session state.

    Raises:
        ValueError: The path is empty or not a tuple of strings, a value is not JSON, or an
            increment is not a number.
    """

    op: Literal["set", "remove", "increment", "append", "compare_and_set"]
    path: tuple[str, ...]
    """The keys from the root to the value; only objects have keys."""
    value: Any = None
    """The value to set, to add or to append."""
    expected: Any = None
    """The value that `compare_and_set` expects."""

    def __post_init__(self) -> None:
        is_path = isinstance(self.path, tuple) and all(isinstance(key, str) for key in self.path)
        if not is_path or not self.path:
            raise ValueError(
                "The path of a change must be a non-empty tuple of keys, which must be strings."
            )
        # Copies, as a store would return them: the caller may mutate the originals later.
        object.__setattr__(self, "value", _json_value(self.value))
        object.__setattr__(self, "expected", _json_value(self.expected))
        if self.op == "increment" and not _is_number(self.value):
            raise ValueError("An increment must be a number, not true or false.")


class SessionStates(Protocol):
    """The interface of stores of session states. An instance belongs to one project."""

    async def read_state(self, session_id: str, initial: Mapping[str, Any]) -> State:
        """Return the state of a session.

        If the session has no state, `initial` is returned but not stored.

        Raises:
            StateConflict: The session's id is too long, or `initial` is not a valid state.
            StoreUnavailable: The store did not answer.
        """

    async def change_state(
        self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
    ) -> State:
        """Change the state of a session, and return the new state.

        If the session has no state, the changes are applied to `initial`. Either all changes are
        stored, or none. Concurrent changes of the same session are executed one after the other.

        Raises:
            StateConflict: The session's id is too long, `initial` is not a valid state, a change
                does not fit the current state, or the new state is too large.
            StoreUnavailable: The store did not answer. It may have stored the changes.
        """

    async def add_run(
        self, session_id: str, initial: Mapping[str, Any], root_plan_id: UUID
    ) -> list[UUID]:
        """Append a run to a session, and return the ids of its earlier runs, oldest first.

        A session keeps the ids of the newest `MAX_SESSION_RUNS` runs. Some of these runs may have
        been deleted. If the session is new, its state becomes `initial`.

        Raises:
            StateConflict: The session's id is too long, or `initial` is not a valid state.
            StoreUnavailable: The store did not answer. It may have added the run.
        """


def apply(state: State, changes: Sequence[StateChange]) -> State:
    """Apply changes to a state in order, and return the new state.

    `state` itself is not changed. The new state shares unchanged parts with it.

    Raises:
        StateConflict: A change does not fit: the current value is not the expected one, not a
            number or not a list, or the path leads through a value that is not an object. The
            message quotes only the path.
    """
    new = dict(state)
    for change in changes:
        new = _changed(new, change)
    return new


def differences(old: State, new: Mapping[str, Any]) -> list[StateChange]:
    """Return the changes that turn `old` into `new`. Each names the deepest value that differs.

    Raises:
        ValueError: `new` is not JSON.
    """
    return list(_differences(old, _json_value(dict(new)), ()))


def _differences(old: State, new: State, path: tuple[str, ...]) -> Iterator[StateChange]:
    for key in old.keys() - new.keys():
        yield StateChange("remove", (*path, key))
    for key, value in new.items():
        before, here = old.get(key), (*path, key)
        if isinstance(before, dict) and isinstance(value, dict):
            yield from _differences(before, value, here)
        elif key in old and _same(before, value):
            continue
        elif isinstance(before, list) and isinstance(value, list) and _begins(value, before):
            yield from (StateChange("append", here, each) for each in value[len(before) :])
        else:
            yield StateChange("set", here, value)


def _begins(longer: list[Any], shorter: list[Any]) -> bool:
    return _same(longer[: len(shorter)], shorter)


def changes_json(changes: Sequence[StateChange]) -> str:
    """Return changes as the text of a JSON array, in the form that a tool call records."""
    described = []
    for change in changes:
        fields = {"op": change.op, "path": change.path, "value": change.value}
        if change.op == "compare_and_set":
            fields["expected"] = change.expected
        described.append(fields)
    return _json_text(described)


def state_text(state: Mapping[str, Any]) -> str:
    """Return a state as JSON text in stored form (`tracer.text`). Inverse of `state_from`.

    Raises:
        StateConflict: The state is too large, nests too deeply, or is not JSON.
    """
    try:
        text = escape(_json_text(dict(state)))
    except (TypeError, ValueError, RecursionError) as error:
        raise StateConflict("The session state can only contain JSON values.") from error
    if len(text.encode()) > MAX_STATE_BYTES:
        raise StateConflict(
            f"The session state must not exceed {MAX_STATE_BYTES:,} bytes as JSON. Remove data."
        )
    if nests_too_deep(text, MAX_STATE_DEPTH):
        raise StateConflict(
            f"The session state must not be nested more than {MAX_STATE_DEPTH} levels deep."
        )
    return text


def state_from(text: str) -> State:
    """Parse the text that `state_text` returned."""
    state: State = json.loads(unescape(text))
    return state


def stored_session_id(session_id: str) -> str:
    """Return a session id in stored form (`tracer.text`).

    Raises:
        StateConflict: The id is too long.
    """
    stored = escape(session_id)
    if len(stored.encode()) > MAX_SESSION_ID_BYTES:
        raise StateConflict(f"The session's id must not exceed {MAX_SESSION_ID_BYTES:,} bytes.")
    return stored


def _changed(state: State, change: StateChange) -> State:
    new = parent = dict(state)
    *parents, last = change.path
    for depth, key in enumerate(parents, 1):
        child = parent.get(key)
        if child is None and change.op == "remove":
            return state
        child = _fitting(child, dict, change.path[:depth], "object")
        parent[key] = dict(child)
        parent = parent[key]
    value, current = change.value, parent.get(last)
    match change.op:
        case "set":
            parent[last] = value
        case "remove":
            parent.pop(last, None)
        case "increment":
            parent[last] = _sum(current, value, change.path)
        case "append":
            parent[last] = [*_fitting(current, list, change.path, "list"), value]
        case "compare_and_set":
            if not _same(current, change.expected):
                raise _conflict(
                    f"The session state does not have the expected value at {_words(change.path)}."
                )
            parent[last] = value
        case _:
            assert_never(change.op)
    return new


def _fitting(value: Any, kind: type[Any], path: tuple[str, ...], name: str) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise _conflict(f"The session state does not have a {name} at {_words(path)}.")
    return value


def _sum(current: Any, value: Any, path: tuple[str, ...]) -> int | float:
    if current is None:
        current = 0
    if not _is_number(current):
        raise _conflict(f"The session state does not have a number at {_words(path)}.")
    try:
        added: int | float = current + value
    except OverflowError:
        added = math.inf
    if added in (math.inf, -math.inf):
        raise _conflict(f"The sum at {_words(path)} in the session state is too large to store.")
    return added


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. In JSON, true and 1 are different values."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _conflict(problem: str) -> StateConflict:
    return StateConflict(f"{problem} None of the changes were stored.")


def _words(path: tuple[str, ...]) -> str:
    return repr(preview(escape(".".join(path)), 200))


def _json_value(value: Any) -> Any:
    try:
        text = _json_text(value)
        if nests_too_deep(text, MAX_STATE_DEPTH):
            raise ValueError("too deep")
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        # Without the cause, which may quote the value.
        raise ValueError(
            "A value in the session state must be JSON (for example no set and no NaN), nested at "
            f"most {MAX_STATE_DEPTH} levels deep."
        ) from None


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# --- Session states in memory. They are lost when the process ends, so nothing is masked.


class MemorySessions:
    """`SessionStates` over a dictionary."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}  # as text, which callers cannot change
        self._runs: dict[str, list[UUID]] = {}

    async def read_state(self, session_id: str, initial: Mapping[str, Any]) -> State:
        """Return a session's state."""
        state_json = self._states.get(stored_session_id(session_id))
        return state_from(state_text(initial) if state_json is None else state_json)

    async def change_state(
        self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
    ) -> State:
        """Apply changes to a session's state."""
        # Atomic, because it has no await.
        state_json = self._states.get(stored_session_id(session_id))
        state = apply(
            state_from(state_text(initial) if state_json is None else state_json), changes
        )
        self._states[stored_session_id(session_id)] = state_text(state)
        return state

    async def add_run(
        self, session_id: str, initial: Mapping[str, Any], root_plan_id: UUID
    ) -> list[UUID]:
        """Append a run to a session."""
        session = stored_session_id(session_id)
        self._states.setdefault(session, state_text(initial))
        runs = [*self._runs.get(session, ()), root_plan_id][-MAX_SESSION_RUNS:]
        self._runs[session] = runs
        return runs[:-1]
