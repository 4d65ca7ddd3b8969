"""What tools and hooks see of their run: the conversation's state, and how to change it.

Changes are made to a copy and kept in the store when the call has succeeded, all or none, as the
operations that they are: calls that run side by side do not lose each other's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tracer.sessions import Change, State, apply

Path = str | tuple[str, ...]
"""Where in the state: a key, or the keys on the way down."""


class SessionState(Mapping[str, Any]):
    """The conversation's state, with the changes that this call has made so far.

    What is read is a copy: change the state by its methods only.
    """

    def __init__(self, state: State) -> None:
        self._at_first = state
        self._state = state
        self._changes: list[Change] = []

    def __getitem__(self, key: str) -> Any:
        return copy.deepcopy(self._state[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"SessionState({', '.join(sorted(self._state))})"

    @property
    def changes(self) -> tuple[Change, ...]:
        """What this call has changed, in order."""
        return tuple(self._changes)

    def set(self, path: Path, value: Any) -> None:
        """Set a value; objects on the way down are made where they are missing."""
        self._change(Change("set", _keys(path), copy.deepcopy(value)))

    def remove(self, path: Path) -> None:
        """Remove a value, if there is one."""
        self._change(Change("remove", _keys(path)))

    def increment(self, path: Path, by: int | float = 1) -> None:
        """Add to a number; one that is missing counts as 0.

        Raises:
            StateConflict: There is something that is no number.
        """
        self._change(Change("increment", _keys(path), by))

    def append(self, path: Path, value: Any) -> None:
        """Add an item to a list; one that is missing counts as empty.

        Raises:
            StateConflict: There is something that is no list.
        """
        self._change(Change("append", _keys(path), copy.deepcopy(value)))

    def compare_and_set(self, path: Path, expected: Any, value: Any) -> None:
        """Set a value if it is what was expected, here and when the change is kept.

        A missing value is expected as None. Where another call was faster, this call fails, and
        nothing that it changed is kept.

        Raises:
            StateConflict: It is another already.
        """
        change = Change("compare_and_set", _keys(path), copy.deepcopy(value), expected)
        self._change(change)

    def back_to(self, changes: tuple[Change, ...]) -> None:
        """Forget what was changed since: an attempt that failed has changed nothing."""
        self._state = apply(self._at_first, changes)
        self._changes = list(changes)

    def _change(self, change: Change) -> None:
        self._state = apply(self._state, [change])
        self._changes.append(change)


def _keys(path: Path) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else tuple(path)


@dataclass(frozen=True)
class RunContext:
    """What a hook, or a tool that asks for it, may know of the run around it."""

    root_plan_id: UUID
    session_id: str | None
    """The conversation; None where the run belongs to none."""
    session_state: SessionState = field(repr=False)
