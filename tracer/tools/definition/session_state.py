"""The session state that tools and hooks read and change.

Reading returns live views: dicts and lists that record each change as an operation
(`tracer.records.sessions.Change`). The runtime stores the operations when the call succeeds, all or
none, so that parallel calls do not overwrite each other's changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import is_
from threading import RLock
from typing import Any, NoReturn, SupportsIndex
from uuid import UUID

from tracer.errors import StateConflict
from tracer.records.sessions import State, StateChange, apply

Path = str | tuple[str, ...]
"""A key of the state, or the keys on the way down to a value."""

_NO_DEFAULT: Any = object()


class StateObject(dict[str, Any]):
    """An object in the session state: a dict whose changes become operations.

    It always shows the call's latest state. A change raises `StateConflict` if the object is no
    longer part of the state (it was removed or replaced) or the call has ended.
    `copy.deepcopy` returns plain data.
    """

    __slots__ = ("_key", "_parent", "_value")

    def __init__(self, value: State, parent: StateObject | StateList | None, key: str) -> None:
        """Create a view of a part of the state.

        Args:
            value: The part. It is not changed.
            parent: The object or list that contains it; None for the whole state.
            key: Its key in `parent`; unused in a list.
        """
        self._value = value
        self._parent = parent
        self._key = key
        super().__init__((name, _view(each, self, name)) for name, each in value.items())

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._change(StateChange("remove", (key,)))

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]  # `|` takes fewer types
        self.update(other)
        return self

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        return copy.deepcopy(self._value, memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return dict, (self._value,)

    def update(self, *others: Any, **more: Any) -> None:
        """Set all of the given keys or none. Each key is a separate operation."""
        new = dict(*others, **more)
        # `state["log"] += […]` extends the list, then assigns it to the same key: no change.
        changed = {key: each for key, each in new.items() if not self._has_view(key, each)}
        self._change(*(StateChange("set", (key,), each) for key, each in changed.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key; set it to `default` first if the key is missing.

        If a parallel call sets the key before the changes are stored, the value of that call is
        kept.
        """
        if key not in self:
            self._change(StateChange("set_default", (key,), default))
        return self[key]

    def pop(self, key: str, default: Any = _NO_DEFAULT) -> Any:
        """Remove a key and return its value, as plain data; `default` if the key is missing."""
        if key not in self and default is not _NO_DEFAULT:
            return default
        value = copy.deepcopy(self[key])
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with its value, as plain data."""
        if not self:
            raise KeyError("This object of the session state is empty.")
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove each key that exists now. Keys that parallel calls add are not removed."""
        self._change(*(StateChange("remove", (key,)) for key in self))

    def _has_view(self, key: str, value: object) -> bool:
        return isinstance(value, StateObject | StateList) and self.get(key) is value

    def _change(self, *changes: StateChange) -> None:
        """Make changes whose paths begin at this object."""
        state, path = _location(self)
        state.make(
            [
                StateChange(each.op, (*path, *each.path), each.value, each.expected)
                for each in changes
            ]
        )


class StateList(list[Any]):
    """A list in the session state, to which items can be appended.

    Parallel calls can append to the same list without losing items. Any other change raises a
    `TypeError`, because it could overwrite their items. To replace the list, assign a new one.
    """

    __slots__ = ("_key", "_parent", "_value")

    def __init__(self, value: list[Any], parent: StateObject | StateList, key: str) -> None:
        """Create a view of a part of the state; see `StateObject`."""
        self._value = value
        self._parent = parent
        self._key = key
        super().__init__(_view(each, self, "") for each in value)

    def append(self, item: Any) -> None:
        """Append an item."""
        self.extend([item])

    def extend(self, items: Iterable[Any]) -> None:
        """Append all items or none. Each item is a separate operation."""
        new = list(items)
        state, path = _location(self)
        state.make([StateChange("append", path, each) for each in new])

    def __iadd__(self, items: Iterable[Any]) -> Any:  # type: ignore[misc]  # as `+` does
        self.extend(items)
        return self

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(self._value, memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (self._value,)

    def _refuse(self, *arguments: Any, **more: Any) -> NoReturn:
        _, path = _location(self)
        raise TypeError(
            f"The list at {'.'.join(path)!r} in the session state can only be appended to: any "
            "other change could undo what a parallel call appends. To replace the whole list, "
            "assign a new one, or call compare_and_set() to fail if it has changed meanwhile."
        )

    __setitem__ = __delitem__ = __imul__ = _refuse
    clear = insert = pop = remove = reverse = sort = _refuse


class SessionState(StateObject):
    """The session state, with the changes that this call has made so far.

    It is a dict. An assignment overwrites the value, even if a parallel call has changed the value
    in the meantime. So use `increment` for counters, `append` for lists, and `compare_and_set` if a
    value must not have changed since it was read.
    """

    __slots__ = ("_at_first", "_changes", "_is_closed", "_lock")

    def __init__(self, state: State) -> None:
        """Create a state without changes.

        Args:
            state: The state when the call started. It is not changed.
        """
        super().__init__(state, None, "")
        self._at_first = state
        self._changes: list[StateChange] = []
        self._is_closed = False
        # A synchronous tool may change the state from several threads.
        self._lock = RLock()

    def __repr__(self) -> str:
        # Keys only: values may be private, and a repr may be logged.
        return f"SessionState({', '.join(sorted(self))})"

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The changes that this call has made, in order."""
        return tuple(self._changes)

    def set(self, path: Path, value: Any) -> None:
        """Set the value at a path. Missing objects on the path are created."""
        self.make([StateChange("set", _keys(path), value)])

    def remove(self, path: Path) -> None:
        """Remove a value if it exists."""
        self.make([StateChange("remove", _keys(path))])

    def increment(self, path: Path, by: int | float = 1) -> None:
        """Add to a number; a missing number counts as 0.

        Raises:
            StateConflict: The value is not a number.
        """
        self.make([StateChange("increment", _keys(path), by)])

    def append(self, path: Path, value: Any) -> None:
        """Append an item to a list; a missing list counts as empty.

        Raises:
            StateConflict: The value is not a list.
        """
        self.make([StateChange("append", _keys(path), value)])

    def compare_and_set(self, path: Path, expected: Any, value: Any) -> None:
        """Set a value if the current value equals `expected`.

        This is checked now, and again when the change is stored. A missing value equals None. If a
        parallel call has changed the value by the time that the changes are stored, this call
        fails, and none of its changes are stored.

        Raises:
            StateConflict: The current value does not equal `expected`.
        """
        self.make([StateChange("compare_and_set", _keys(path), value, expected)])

    def make(self, changes: Iterable[StateChange]) -> None:
        """Apply all changes in order, or none of them.

        Raises:
            StateConflict: A change does not fit the state, or the call has ended.
        """
        new = list(changes)
        with self._lock:
            if self._is_closed:
                raise StateConflict(
                    "A tool or hook changed the session state after its call had ended, so the "
                    "change is not stored. Change the state before the tool and its hooks return."
                )
            state = apply(self._value, new)
            self._changes += new
            for each in new:
                if each.op in ("set", "remove", "compare_and_set"):
                    _detach(self, each.path)
            for each in new:
                _show_at(self, state, each.path)

    def restore(self, changes: tuple[StateChange, ...]) -> None:
        """Undo the changes of a failed attempt.

        Args:
            changes: The changes before the attempt, which are kept.
        """
        with self._lock:
            self._changes = list(changes)
            _show(self, apply(self._at_first, changes))

    def close(self) -> None:
        """Reject further changes. Called when the call has ended."""
        with self._lock:
            self._is_closed = True


def _view(value: Any, parent: StateObject | StateList, key: str) -> Any:
    if isinstance(value, dict):
        return StateObject(value, parent, key)
    return StateList(value, parent, key) if isinstance(value, list) else value


def _location(view: StateObject | StateList) -> tuple[SessionState, tuple[str, ...]]:
    """Return the state that a view belongs to, and the view's path in it.

    Raises:
        StateConflict: The view is no longer part of the state.
        TypeError: The view is an item of a list; operations can only change whole lists.
    """
    path: list[str] = []
    while not isinstance(view, SessionState):
        parent, key = view._parent, view._key
        if isinstance(parent, StateList):
            raise TypeError(
                "An item of a list in the session state cannot be changed in place. Assign a new "
                "list, or use an object instead of the list: its values can be changed."
            )
        if parent is None or parent.get(key) is not view:
            raise StateConflict(
                f"The value that was read at {key!r} in the session state has been removed or "
                "replaced since. Read it again before changing it."
            )
        path.append(key)
        view = parent
    return view, tuple(reversed(path))


def _detach(state: SessionState, path: tuple[str, ...]) -> None:
    """Detach the view at a path, so that later changes of the state do not change the view."""
    *parents, last = path
    parent: Any = state
    for key in parents:
        parent = parent.get(key)
        if not isinstance(parent, StateObject):
            return
    if isinstance(parent.get(last), StateObject | StateList):
        # Not removed: callers may assign to the keys that they iterate over.
        dict.__setitem__(parent, last, None)


def _show_at(state: SessionState, new_state: State, path: tuple[str, ...]) -> None:
    """Update a state and its views to a new value, which differs at `path` and nowhere else.

    Visits the path only, because objects may have thousands of keys.
    """
    view: StateObject | StateList = state
    value: Any = new_state
    for key in path:
        assert isinstance(view, StateObject)
        view._value = value
        child = _show_key(view, key)
        if child is None:
            return
        view, value = child, value[key]
    _show(view, value)


def _show(view: StateObject | StateList, new_value: Any) -> None:
    """Replace the content of a view, and of the views within it, by a new value."""
    stale: list[tuple[StateObject | StateList, Any]] = [(view, new_value)]
    while stale:
        view, value = stale.pop()
        old, view._value = view._value, value
        if old is value:
            continue
        if isinstance(view, StateList):
            has_grown = len(old) <= len(value) and all(map(is_, old, value))
            same = len(old) if has_grown else 0
            new = [_view(each, view, "") for each in value[same:]]
            list.__setitem__(view, slice(same, None), new)
            continue
        for key in [*old, *value]:
            child = _show_key(view, key)
            if child is not None:
                stale.append((child, value[key]))
        if list(view) != list(value):  # if the removal of a key was undone
            ordered = {key: view[key] for key in value}
            dict.clear(view)
            dict.update(view, ordered)


def _show_key(view: StateObject, key: str) -> StateObject | StateList | None:
    """Update a view at one key.

    Returns:
        The view at the key, if it is still valid and must be updated next; otherwise None.
    """
    if key not in view._value:
        dict.pop(view, key, None)
        return None
    value, shown = view._value[key], view.get(key)
    if isinstance(value, dict | list):
        kind = StateObject if isinstance(value, dict) else StateList
        if isinstance(shown, kind):
            return shown
    if shown is not value or key not in view:
        dict.__setitem__(view, key, _view(value, view, key))
    return None


def _keys(path: Path) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else tuple(path)


@dataclass(frozen=True)
class RunContext:
    """The part of the run that hooks and tools may use."""

    root_plan_id: UUID
    session_id: str | None
    """The session that the run belongs to; None if it belongs to no session."""
    session_state: SessionState = field(repr=False)
