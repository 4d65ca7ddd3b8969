"""Session state: what a conversation keeps from one run to the next; pure, and what stores promise.

A state is a JSON object. Tools and hooks change it by operations instead of returning a changed
copy, so that parallel calls do not overwrite each other: five parallel increments add five.
Everywhere, null counts as absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, assert_never
from uuid import UUID

from tracer.errors import StateConflict
from tracer.text import escape, nests_too_deep, preview, unescape

State = dict[str, Any]
"""JSON values by key."""

MAX_STATE_BYTES = 2**20
"""How large a state may grow, as JSON."""

MAX_STATE_DEPTH = 100
"""How deep its objects and lists may nest."""

MAX_SESSION_RUNS = 100
"""How many runs a session keeps the ids of: the newest."""

MAX_SESSION_ID_BYTES = 2_000
"""How long a session's id may be: it leads an index, whose entries have room for 2,700 bytes."""


@dataclass(frozen=True)
class StateChange:
    """One operation on a state.

    Raises:
        ValueError: The path is empty or no tuple of keys, a value is no JSON, or what is to be
            added is no number.
    """

    op: Literal["set", "set_default", "remove", "increment", "append", "compare_and_set"]
    """`set_default` sets a value only if it is missing."""
    path: tuple[str, ...]
    """The keys on the way down; only objects have keys."""
    value: Any = None
    """What to set, to add or to append."""
    expected: Any = None
    """What `compare_and_set` has to find."""

    def __post_init__(self) -> None:
        is_path = isinstance(self.path, tuple) and all(isinstance(key, str) for key in self.path)
        if not is_path or not self.path:
            raise ValueError("The path of a change must be a tuple of keys: text, at least one.")
        # Copies, as a store would return them: the caller may mutate the originals later.
        object.__setattr__(self, "value", _json_value(self.value))
        object.__setattr__(self, "expected", _json_value(self.expected))
        if self.op == "increment" and not _is_number(self.value):
            raise ValueError("An increment must be a number, not true or false.")


class SessionStates(Protocol):
    """Keeps the states of a project's sessions."""

    async def read_state(self, session_id: str, initial: Mapping[str, Any]) -> State:
        """Return a session's state; `initial` where there is none yet, which stores nothing.

        Raises:
            StateConflict: The session's id is too long, or `initial` is no state.
            StoreUnavailable: The store did not answer.
        """

    async def change_state(
        self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
    ) -> State:
        """Apply `changes` to a session's newest state, or to `initial`; return what it is then.

        All or nothing, and as if no other changes were made at the same time.

        Raises:
            StateConflict: As above; or a change does not fit what the state is by now, or makes
                it too large.
            StoreUnavailable: The store did not answer. Whether it kept the changes is not known.
        """

    async def add_run(
        self, session_id: str, initial: Mapping[str, Any], root_plan_id: UUID
    ) -> list[UUID]:
        """Append a run to a session; return the ids of the runs before it, oldest first.

        A session holds at most the newest `MAX_SESSION_RUNS` runs. Runs that were deleted since
        are still among the ids. If the session is new, its state becomes `initial`.

        Raises:
            StateConflict: The session's id is too long, or `initial` is no state.
            StoreUnavailable: The store did not answer. Whether it added the run is not known.
        """


def apply(state: State, changes: Sequence[StateChange]) -> State:
    """Return a state with `changes` made one after the other.

    Neither is changed. The result shares with both what it has in common with them.

    Raises:
        StateConflict: An expectation fails, or a change does not fit: there is no number to add
            to, no list to append to, or no object on the way. The message names the path alone.
    """
    new = dict(state)
    for change in changes:
        new = _changed(new, change)
    return new


def changes_json(changes: Sequence[StateChange]) -> str:
    """Return changes as a tool call records them: the text of a JSON array, an object for each."""
    described = []
    for change in changes:
        said = {"op": change.op, "path": change.path, "value": change.value}
        if change.op == "compare_and_set":
            said["expected"] = change.expected
        described.append(said)
    return _json_text(described)


def state_text(state: Mapping[str, Any]) -> str:
    """Return a state as stores keep it: JSON in stored form. Inverse of `state_from`.

    Raises:
        StateConflict: It is too large or nests too deep, or is no JSON.
    """
    try:
        text = escape(_json_text(dict(state)))
    except (TypeError, ValueError, RecursionError) as error:
        raise StateConflict("The session's state can hold nothing but JSON.") from error
    if len(text.encode()) > MAX_STATE_BYTES:
        raise StateConflict(
            f"The session's state has room for {MAX_STATE_BYTES:,} bytes as JSON: remove something."
        )
    if nests_too_deep(text, MAX_STATE_DEPTH):
        raise StateConflict(f"The session's state may nest {MAX_STATE_DEPTH} deep, not deeper.")
    return text


def state_from(text: str) -> State:
    """Return the state that `state_text` wrote."""
    state: State = json.loads(unescape(text))
    return state


def stored_session_id(session_id: str) -> str:
    """Return a session's id in stored form.

    Raises:
        StateConflict: It is too long.
    """
    stored = escape(session_id)
    if len(stored.encode()) > MAX_SESSION_ID_BYTES:
        raise StateConflict(
            f"The session's id is longer than {MAX_SESSION_ID_BYTES:,} bytes: no state is kept."
        )
    return stored


def _changed(state: State, change: StateChange) -> State:
    new = parent = dict(state)
    *above, last = change.path
    for depth, key in enumerate(above, 1):
        below = parent.get(key)
        if below is None and change.op == "remove":
            return state
        below = _fitting(below, dict, change.path[:depth], "object")
        parent[key] = dict(below)
        parent = parent[key]
    value, current = change.value, parent.get(last)
    match change.op:
        case "set":
            parent[last] = value
        case "set_default":
            parent[last] = value if current is None else current
        case "remove":
            parent.pop(last, None)
        case "increment":
            parent[last] = _sum(current, value, change.path)
        case "append":
            parent[last] = [*_fitting(current, list, change.path, "list"), value]
        case "compare_and_set":
            if not _same(current, change.expected):
                raise _conflict(f"is not what was expected at {_words(change.path)}")
            parent[last] = value
        case _:
            assert_never(change.op)
    return new


def _fitting(value: Any, kind: type[Any], path: tuple[str, ...], name: str) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise _conflict(f"holds no {name} at {_words(path)}")
    return value


def _sum(current: Any, value: Any, path: tuple[str, ...]) -> int | float:
    if current is None:
        current = 0
    if not _is_number(current):
        raise _conflict(f"holds no number at {_words(path)}")
    try:
        added: int | float = current + value
    except OverflowError:
        added = math.inf
    if added in (math.inf, -math.inf):
        raise _conflict(f"has no room for a number that large at {_words(path)}")
    return added


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: true is no 1, though Python says so."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _conflict(what: str) -> StateConflict:
    return StateConflict(f"The session's state {what}; nothing of this was kept.")


def _words(path: tuple[str, ...]) -> str:
    return repr(preview(escape(".".join(path)), 200))


def _json_value(value: Any) -> Any:
    try:
        text = _json_text(value)
        if nests_too_deep(text, MAX_STATE_DEPTH):
            raise ValueError("too deep")
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        # No cause: that error may quote the value.
        raise ValueError(
            "The session state can only hold JSON values (for example no sets and no NaN) that "
            f"nest at most {MAX_STATE_DEPTH} deep."
        ) from None


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
