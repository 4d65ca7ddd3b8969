"""Derive the parameters of a tool from the signature and the docstring of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, get_args, get_type_hints

import griffe

from tracer.context import ToolContext
from tracer.errors import RegistrationError
from tracer.tools.definition.arguments import Parameter, Parameters, parameters_from_types
from tracer.tools.definition.hidden_parameters import (
    REQUIRED,
    CallingAgent,
    HiddenParameter,
    TokenId,
    User,
    UserId,
    hidden_parameter,
)
from tracer.tools.definition.session_state import RunContext, SessionState

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
