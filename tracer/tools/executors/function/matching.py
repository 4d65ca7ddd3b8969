"""Check before any call that a JSON Schema and a function have the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from inspect import Parameter
from typing import Any, NamedTuple

from tracer.errors import RegistrationError
from tracer.threads import is_async
from tracer.tools.definition.arguments import JsonSchema
from tracer.tools.definition.hidden_parameters import parameter_names

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Matched(NamedTuple):
    """A function and a JSON Schema that fit each other."""

    execute: Callable[..., Any]
    """Receives the arguments by name."""
    parameters: JsonSchema
    """Accepts only arguments that the function accepts."""


def matching(
    owner: str, execute: Callable[..., Any], parameters: JsonSchema, hidden: Collection[str]
) -> Matched:
    """Return a function and a schema that fit each other.

    The schema is narrowed to what the function accepts: its parameters without a default are
    `required`, and other arguments are not allowed unless it takes `**others`.

    Args:
        owner: The tool's name, for errors.
        execute: The function. If its only required parameter is neither in the schema nor hidden,
            the function receives all arguments as one dict.
        parameters: The JSON Schema of the model's arguments.
        hidden: The names of the parameters that the runtime fills.

    Raises:
        RegistrationError: The schema has an argument that the function does not accept, or the
            function requires an argument that the schema lacks.
    """
    try:
        signature = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):  # a function of an extension module may have no signature
        return Matched(execute, parameters)
    names = parameter_names(parameters) | set(hidden)
    converted = by_name(execute, names)
    if converted is not execute:
        return Matched(converted, parameters)
    accepted = {each.name for each in signature if each.kind in _BY_NAME}
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in signature)
    if not takes_any and (unknown := sorted(names - accepted)):
        raise RegistrationError(
            f"The schema of the tool {owner!r} has the argument {unknown[0]!r}, which its function "
            f"does not accept: {_shown(signature)}. Add the parameter, or remove the argument."
        )
    needed = [each.name for each in signature if each.default is each.empty and _is_single(each)]
    if missing := [name for name in needed if name not in names]:
        raise RegistrationError(
            f"The function of the tool {owner!r} needs {missing[0]!r}, which its schema does not "
            f"have: {_shown(signature)}. Add it to `properties`, give it a default, or hide it."
        )
    narrowed = dict(parameters)
    required = parameters.get("required")
    required = required if isinstance(required, list) else []
    if added := [each for each in needed if each not in required and each not in hidden]:
        narrowed["required"] = [*required, *added]
    if not takes_any and parameter_names(parameters) == set(parameters.get("properties", ())):
        narrowed.setdefault("additionalProperties", False)
    return Matched(execute, narrowed)


def by_name(execute: Callable[..., Any], names: Collection[str]) -> Callable[..., Any]:
    """Return a function that takes arguments by name.

    Args:
        execute: The function to call. If it has exactly one required parameter, and no parameter
            has one of `names`, the function receives all arguments as one dict.
        names: The names of all arguments; empty if the schema allows any argument.
    """
    parameter = _object_parameter(execute, names)
    if parameter is None:
        return execute
    # A schema without properties allows any argument, so also one for that parameter.
    own_name = None if names else parameter.name
    if is_async(execute):

        async def run_async(**arguments: Any) -> Any:
            if own_name in arguments:
                return await execute(**arguments)
            return await execute(arguments)

        return run_async

    @wraps(execute)
    def run(**arguments: Any) -> Any:
        return execute(**arguments) if own_name in arguments else execute(arguments)

    return run


def _object_parameter(execute: Callable[..., Any], names: Collection[str]) -> Parameter | None:
    """Return the parameter that receives all arguments as one dict; None if none does."""
    try:
        signature = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):  # a function of an extension module may have no signature
        return None
    if any(each.name in names or not _is_single(each) for each in signature):
        return None
    required = [each for each in signature if each.default is each.empty]
    if len(required) != 1 or required[0].kind is Parameter.KEYWORD_ONLY:
        return None
    return required[0]


def _is_single(parameter: Parameter) -> bool:
    return parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _shown(signature: Collection[Parameter]) -> str:
    return f"({', '.join(map(str, signature))})"
