"""The session state that tools and hooks read and change.

It is a dict of plain data. Assignments are found by comparison, when the call ends. Methods such as
`increment` record an operation (`tracer.records.sessions.StateChange`). The runtime stores the
changes when the call succeeds, all or none. Parallel calls that change different values, or use the
methods, do not overwrite each other's changes.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, SupportsIndex
from uuid import UUID

from tracer.errors import StateConflict
from tracer.records.sessions import State, StateChange, apply, differences

Path = str | tuple[str, ...]
"""A key of the state, or the keys on the way down to a value."""


class SessionState(dict[str, Any]):
    """The session state, with the changes that this call has made so far.

    An assignment, also to a nested value, overwrites the value, even if a parallel call has changed
    it in the meantime. So use `increment` for counters, `append` for lists, and `compare_and_set`
    if a value must not have changed since it was read.
    """

    def __init__(self, state: State) -> None:
        """Create a state without changes.

        Args:
            state: The state when the call started. It is not changed.
        """
        super().__init__(copy.deepcopy(state))
        self._at_first = self._recorded = state
        """`_recorded` is the state at the start with all of `_changes`."""
        self._changes: list[StateChange] = []
        self._is_closed = False
        # A synchronous tool may change the state from several threads.
        self._lock = RLock()

    def __repr__(self) -> str:
        # Keys only: values may be private, and a repr may be logged.
        return f"SessionState({', '.join(sorted(map(str, self)))})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (dict(self),)

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The changes that this call has made until it was closed, in order.

        Raises:
            ValueError: The state contains a value that is not JSON.
        """
        with self._lock:
            if not self._is_closed:
                self._record(differences(self._recorded, self))
            return tuple(self._changes)

    def set(self, path: Path, value: Any) -> None:
        """Set the value at a path. Missing objects on the path are created."""
        self._make(StateChange("set", _keys(path), value))

    def remove(self, path: Path) -> None:
        """Remove a value if it exists."""
        self._make(StateChange("remove", _keys(path)))

    def increment(self, path: Path, by: int | float = 1) -> None:
        """Add to a number; a missing number counts as 0.

        Raises:
            StateConflict: The value is not a number.
        """
        self._make(StateChange("increment", _keys(path), by))

    def append(self, path: Path, value: Any) -> None:
        """Append an item to a list; a missing list counts as empty.

        Raises:
            StateConflict: The value is not a list.
        """
        self._make(StateChange("append", _keys(path), value))

    def compare_and_set(self, path: Path, expected: Any, value: Any) -> None:
        """Set a value if the current value equals `expected`.

        This is checked now, and again when the change is stored. A missing value equals None. If a
        parallel call has changed the value by the time that the changes are stored, this call
        fails, and none of its changes are stored.

        Raises:
            StateConflict: The current value does not equal `expected`.
        """
        self._make(StateChange("compare_and_set", _keys(path), value, expected))

    def restore(self, changes: tuple[StateChange, ...]) -> None:
        """Undo the changes of a failed attempt. Nested values that were read before are stale.

        Args:
            changes: The changes before the attempt, which are kept.
        """
        with self._lock:
            self._changes = []
            self._recorded = self._at_first
            self._record(changes)
            self.clear()
            self.update(copy.deepcopy(self._recorded))

    def close(self) -> None:
        """Ignore further assignments, and reject other changes. Called when the call has ended."""
        with self._lock:
            self._is_closed = True

    def _make(self, change: StateChange) -> None:
        with self._lock:
            if self._is_closed:
                raise StateConflict(
                    "A tool or hook changed the session state after its call had ended, so the "
                    "change is not stored. Change the state before the tool and its hooks return."
                )
            self._record(differences(self._recorded, self))
            self._record([change])
            # In place, so that nested values that the tool has read stay part of the state.
            target: Any = self
            value: Any = self._recorded
            *parents, last = change.path
            for key in parents:
                value = value.get(key)
                if value is None:
                    return  # nothing to remove
                if target.get(key) is None:
                    target[key] = {}
                target = target[key]
            if change.op == "append" and isinstance(target.get(last), list):
                target[last].append(copy.deepcopy(change.value))
            elif last in value:
                target[last] = copy.deepcopy(value[last])
            else:
                target.pop(last, None)

    def _record(self, changes: list[StateChange] | tuple[StateChange, ...]) -> None:
        self._recorded = apply(self._recorded, changes)
        self._changes += changes


def _keys(path: Path) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else tuple(path)


@dataclass(frozen=True)
class RunContext:
    """The part of the run that hooks and tools may use."""

    root_plan_id: UUID
    session_id: str | None
    """The session that the run belongs to; None if it belongs to no session."""
    session_state: SessionState = field(repr=False)
