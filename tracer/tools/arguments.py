"""A tool's arguments: from the model's text to what the tool is called with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from tracer.errors import InvalidArguments
from tracer.tools.schema_limits import check_limits

JsonSchema = dict[str, Any]

Arguments = dict[str, Any]
"""What a tool is called with, by parameter."""

MAX_PROBLEMS = 10
"""How many misfits of one call's arguments are told to the model."""


def read_arguments(text: str | None) -> dict[str, Any]:
    """Return the arguments that a model wrote.

    Args:
        text: What the model wrote, usually JSON; nothing at all means no arguments, as some
            providers send it for tools without parameters.

    Raises:
        InvalidArguments: It is no JSON object. The message says where, and repeats nothing of it.
    """
    if text is None or not text.strip():
        return {}
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidArguments(
            f"The arguments are no valid JSON ({error.msg} at {where}). "
            "Call the tool again with one JSON object."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            "The arguments can't be read: a number in them is too long or not finite, "
            "or they are nested too deeply. Call the tool again with simpler ones."
        ) from error
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            "The arguments have to be one JSON object, such as {}. Call the tool again with one."
        )
    return arguments


def schema_check(schema: JsonSchema) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that holds arguments against a JSON Schema and hands them on unchanged.

    The function raises `InvalidArguments`.

    Raises:
        ValueError: `schema` is no JSON Schema, refers to another document, or is beyond the limits
            of `tracer.tools.schema_limits`.
    """
    check_limits(schema)
    # Values are masked: an error text must not repeat what was given.
    validator = jsonschema_rs.validator_for(schema, retriever=_refuse_retrieval, mask="this value")

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            problems = [
                (error.instance_path, error.message) for error in validator.iter_errors(arguments)
            ]
        except ValueError as error:
            # Such as a lone surrogate, which the validator's strings cannot hold.
            raise InvalidArguments(
                "The arguments hold text that is no valid Unicode. Call the tool again without it."
            ) from error
        if problems:
            raise invalid_arguments(problems)
        return arguments

    return check


def invalid_arguments(problems: Iterable[tuple[Sequence[str | int], str]]) -> InvalidArguments:
    """Return the error that tells a model what is wrong with its arguments.

    Args:
        problems: For each misfit the path to it, and what is wrong there.
    """
    problems = list(problems)
    lines = [
        f"{'.'.join(str(part) for part in path) or 'arguments'}: {what}"
        for path, what in problems[:MAX_PROBLEMS]
    ]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
    return InvalidArguments(f"The arguments do not fit the tool. {'; '.join(lines)}.")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _refuse_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"a tool's schema cannot refer to another document: {uri}")
