"""Derive the parameters of a tool from the signature and the docstring of its function."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from types import NoneType
from typing import Any, SupportsIndex, get_args, get_type_hints
from uuid import UUID

import griffe

from tracer.context import ToolContext
from tracer.errors import RegistrationError, StateConflict
from tracer.records.sessions import State, StateChange, apply, differences
from tracer.tools.parameters import (
    REQUIRED,
    CallingAgent,
    HiddenParameter,
    Parameter,
    Parameters,
    TokenId,
    User,
    UserId,
    hidden_parameter,
    parameters_from_types,
)

# --- The session state that tools and hooks read and change.
#
# It is a dict of plain data. Assignments are found by comparison, when the call ends. Methods such
# as `increment` record an operation (`tracer.records.sessions.StateChange`). The runtime stores the
# changes when the call succeeds, all or none. Parallel calls that change different values, or use
# the methods, do not overwrite each other's changes.

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


# --- Derive the parameters of a tool from the signature and the docstring of its function.

HIDING_TYPES = (ToolContext, RunContext, SessionState, TokenId, UserId, User, CallingAgent)
"""A parameter of one of these types is hidden, even without a mark."""

HIDING_WORDS: Mapping[str, Any] = {"token": TokenId, "user_id": UserId}
"""The names in `tools.toml` of types that hide a parameter."""

FILLED_BY_NAME: Mapping[str, HiddenParameter] = {
    "agent": HiddenParameter(CallingAgent),
    "context": HiddenParameter(ToolContext),
    "run_context": HiddenParameter(RunContext),
    "team": HiddenParameter(Any, lambda: None),
}
"""The parameters that are hidden by their names if they have no type, as in Agno. Tracer has no
teams."""

_FILLED_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


@dataclass(frozen=True)
class Signature:
    """The parameters that a model supplies, and those that the runtime fills."""

    description: str
    parameters: Parameters
    hidden: dict[str, HiddenParameter]


def signature_of(
    function: Callable[..., Any], hidden: Mapping[str, Any] | None = None
) -> Signature:
    """Return which parameters of `function` the model supplies, and which the runtime fills.

    The docstring may be in Google's, NumPy's or Sphinx's style.

    Args:
        function: The function.
        hidden: More parameters to hide, whatever their types; see `hidden_parameters`.

    Raises:
        RegistrationError: A type cannot be resolved or read from JSON; a parameter cannot be
            supplied by name; or `hidden` names a parameter that does not exist.
    """
    name = getattr(function, "__name__", repr(function))
    hints = _type_hints(name, function)
    description, texts = _read_docstring(inspect.getdoc(function) or "")
    parameters: dict[str, Parameter] = {}
    hidden_found = hidden_parameters(name, hidden or {})
    signature = inspect.signature(function).parameters
    if unknown := hidden_found.keys() - signature.keys():
        raise RegistrationError(
            f"{name!r} has no parameter {min(unknown)!r} to hide. Its parameters are: "
            f"{', '.join(signature) or 'none'}."
        )
    for position, parameter in enumerate(signature.values()):
        if parameter.kind in _FILLED_BY_POSITION:
            raise RegistrationError(
                f"{name!r} has the parameter {str(parameter)!r}, which a model cannot supply by "
                "name. Replace it by named parameters."
            )
        if parameter.name in hidden_found:
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        if parameter.name not in hints:
            if position == 0 and parameter.name in ("self", "cls"):
                raise _without_instance(name, parameter.name)
            if parameter.name in FILLED_BY_NAME:
                hidden_found[parameter.name] = FILLED_BY_NAME[parameter.name]
                continue
        kind = hints.get(parameter.name) or _type_of_default(default)
        by_type = hidden_parameter(parameter.name, kind, HIDING_TYPES, default)
        if by_type is not None:
            hidden_found[parameter.name] = by_type
            continue
        parameters[parameter.name] = Parameter(kind, default, texts.get(parameter.name))
    return Signature(description, parameters_from_types(name, parameters), hidden_found)


def description_of(function: Callable[..., Any]) -> str:
    """Return a function's docstring up to its first section; empty if it has none."""
    return _read_docstring(inspect.getdoc(function) or "")[0]


def hidden_by_type(function: Callable[..., Any]) -> dict[str, HiddenParameter]:
    """Return the parameters of `function` that are hidden by their types. Others need no type.

    Raises:
        RegistrationError: A type cannot be resolved.
    """
    name = getattr(function, "__name__", repr(function))
    hints = _type_hints(name, function)
    hidden = {}
    for parameter in inspect.signature(function).parameters.values():
        default = ... if parameter.default is parameter.empty else parameter.default
        kind = hints.get(parameter.name, Any)
        if each := hidden_parameter(parameter.name, kind, HIDING_TYPES, default):
            hidden[parameter.name] = each
    return hidden


def _type_hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    typed: Any = function
    while isinstance(typed, partial):
        typed = typed.func
    if not inspect.isroutine(typed):
        typed = type(typed).__call__
    try:
        return get_type_hints(typed, include_extras=True)
    except (NameError, TypeError) as error:
        # Not ignored: the parameter may be one that must be hidden from the model.
        raise RegistrationError(
            f"The types of {name!r}'s parameters cannot be resolved ({error}). Define them at the "
            "top level of the function's module."
        ) from error


def _without_instance(owner: str, name: str) -> RegistrationError:
    return RegistrationError(
        f"{owner!r} is a method of a class, so the model would be asked for {name!r}. Make the "
        f"tool from an instance: tool(instance.{owner})."
    )


def _type_of_default(default: Any) -> Any:
    """Return the type of a parameter that is written without one."""
    if default is None:
        return str | None
    return str if default is ... else type(default)


def hidden_parameters(owner: str, hidden: Mapping[str, Any]) -> dict[str, HiddenParameter]:
    """Return the parameters that a tool's option `hidden` names.

    Args:
        owner: The tool's name, for errors.
        hidden: Maps a parameter's name to a type hint, as in `{"user_id": UserId}`, or to a key of
            `HIDING_WORDS`. If a type includes None, as in `UserId | None`, the value for a call
            without a caller is None.

    Raises:
        RegistrationError: A parameter has neither a hiding type nor a provider.
    """
    return {
        name: kind if isinstance(kind, HiddenParameter) else _hidden(owner, name, kind)
        for name, kind in hidden.items()
    }


def _hidden(owner: str, name: str, kind: Any) -> HiddenParameter:
    kind = HIDING_WORDS.get(kind, kind) if isinstance(kind, str) else kind
    default = None if NoneType in get_args(kind) else REQUIRED
    parameter = (
        None if isinstance(kind, str) else hidden_parameter(name, kind, HIDING_TYPES, default)
    )
    if parameter is None:
        raise RegistrationError(
            f"The tool {owner!r} hides {name!r}, but nothing determines its value. "
            "Annotate the parameter with TokenId, UserId, or Annotated[str, Hidden(get_value)]. "
            f"In a tool file, write {' or '.join(map(repr, HIDING_WORDS))}."
        )
    return parameter


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text before a docstring's sections, and the description of each parameter."""
    parsed = griffe.Docstring(docstring)
    style, _ = griffe.infer_docstring_style(parsed)
    introduction: list[str] = []
    texts: dict[str, str] = {}
    for section in parsed.parse(style or "google", warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            introduction.append(section.value)
        elif isinstance(section, griffe.DocstringSectionParameters):
            for each in section.value:
                texts[each.name.lstrip("*")] = " ".join(each.description.split())
    return "\n\n".join(introduction[:1]).strip(), texts
