"""What a tool function's signature and docstring tell a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from tracer.context import ToolContext
from tracer.tools.parameters import Parameter, Parameters, parameters_from_types

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):\s*$")
_PARAMETER = re.compile(r"^(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")
_FILLED_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


@dataclass(frozen=True)
class Signature:
    """What a model may give a function, and where the call's context goes."""

    description: str
    parameters: Parameters
    context_parameters: tuple[str, ...]


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return what a model may give `function`.

    Raises:
        TypeError: A parameter's type cannot be told or filled from JSON, or it can't be given by
            name.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        # To go on would show the model a parameter that may be meant to be hidden from it.
        raise TypeError(
            f"The types of {name!r}'s parameters can't be told ({error}): define them where the "
            "function's module can see them."
        ) from error
    description, texts = _read_docstring(inspect.getdoc(function) or "")
    parameters: dict[str, Parameter] = {}
    context_parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _FILLED_BY_POSITION:
            raise TypeError(
                f"{name!r} has the parameter {str(parameter)!r}, which a model can't give by name."
            )
        kind = hints.get(parameter.name, Any)
        if _is_context(kind):
            context_parameters.append(parameter.name)
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        parameters[parameter.name] = Parameter(kind, default, texts.get(parameter.name))
    return Signature(
        description, parameters_from_types(name, parameters), tuple(context_parameters)
    )


def _is_context(kind: Any) -> bool:
    return kind is ToolContext or (
        get_origin(kind) is not None and any(_is_context(each) for each in get_args(kind))
    )


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return what stands before a docstring's sections, and what its `Args:` say of each."""
    lines = docstring.splitlines()
    before: list[str] = []
    texts: dict[str, list[str]] = {}
    section, name, indent = None, "", 0
    for line in lines:
        if heading := _SECTION.match(line):
            section, indent = heading[1], 0
        elif section is None:
            before.append(line)
        elif section in ("Args", "Arguments", "Parameters"):
            found = _PARAMETER.match(line)
            if found and (not indent or len(found["indent"]) <= indent):
                name, indent = found["name"], len(found["indent"])
                texts[name] = [found["text"]]
            elif name and line.strip():
                texts[name].append(line.strip())
    return "\n".join(before).strip(), {each: " ".join(said) for each, said in texts.items()}
