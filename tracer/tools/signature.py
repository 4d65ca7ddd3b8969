"""What a tool function's signature and docstring tell a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import griffe

from tracer.context import ToolContext
from tracer.errors import RegistrationError
from tracer.tools.arguments import JsonSchema
from tracer.tools.hidden import (
    HiddenParameter,
    TokenId,
    User,
    UserId,
    check_no_visible_twin,
    hidden_parameter,
)
from tracer.tools.parameters import Parameter, Parameters, parameters_from_types
from tracer.tools.session_state import RunContext, SessionState

HIDING_TYPES = (ToolContext, RunContext, SessionState, TokenId, UserId, User)
"""A parameter of one of these types is hidden, marked or not."""

_FILLED_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


@dataclass(frozen=True)
class Signature:
    """What a model may give a function, and what the runtime fills."""

    description: str
    parameters: Parameters
    hidden: dict[str, HiddenParameter]


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return what a model may give `function`, and what is hidden from it.

    The docstring may be in Google's, NumPy's or Sphinx's style.

    Raises:
        RegistrationError: A parameter's type cannot be told or filled from JSON, it can't be given
            by name, or a model could not tell it from a hidden one.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        # To go on would show the model a parameter that may be meant to be hidden from it.
        raise RegistrationError(
            f"The types of {name!r}'s parameters can't be told ({error}): define them where the "
            "function's module can see them."
        ) from error
    description, texts = _read_docstring(inspect.getdoc(function) or "")
    parameters: dict[str, Parameter] = {}
    hidden: dict[str, HiddenParameter] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _FILLED_BY_POSITION:
            raise RegistrationError(
                f"{name!r} has the parameter {str(parameter)!r}, which a model can't give by name."
            )
        kind = hints.get(parameter.name, Any)
        found = hidden_parameter(parameter.name, kind, HIDING_TYPES)
        if found is not None:
            hidden[parameter.name] = found
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        parameters[parameter.name] = Parameter(kind, default, texts.get(parameter.name))
    return Signature(description, parameters_from_types(name, parameters), hidden)


def hidden_parameters(
    owner: str, hidden: Mapping[str, Any], schema: JsonSchema
) -> dict[str, HiddenParameter]:
    """Return the parameters that a tool without a signature hides.

    Args:
        owner: The tool's name, for errors.
        hidden: Their type hints by name, such as `{"user_id": UserId}`.
        schema: What a model may give it.

    Raises:
        RegistrationError: Nothing says where a value comes from, or a model could not tell it from
            what it may give.
    """
    found = {}
    for name, kind in hidden.items():
        each = kind if isinstance(kind, HiddenParameter) else _hidden(owner, name, kind)
        found[name] = each
    check_no_visible_twin(owner, schema, found)
    return found


def _hidden(owner: str, name: str, kind: Any) -> HiddenParameter:
    found = hidden_parameter(name, kind, HIDING_TYPES)
    if found is None:
        raise RegistrationError(
            f"The tool {owner!r} hides {name!r}, but nothing says where its value comes from: "
            "write UserId, or Annotated[str, Hidden(get_value)]."
        )
    return found


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return what stands before a docstring's sections, and what it says of each parameter."""
    parsed = griffe.Docstring(docstring)
    style, _ = griffe.infer_docstring_style(parsed)
    before: list[str] = []
    texts: dict[str, str] = {}
    for section in parsed.parse(style or "google", warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            before.append(section.value)
        elif isinstance(section, griffe.DocstringSectionParameters):
            for each in section.value:
                texts[each.name.lstrip("*")] = " ".join(each.description.split())
    return "\n\n".join(before[:1]).strip(), texts
