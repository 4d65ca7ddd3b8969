"""Parse the arguments that a model wrote, and check them against a tool's parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import new_class
from typing import Any, NamedTuple, NoReturn

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from tracer.errors import InvalidArguments, RegistrationError

MAX_BYTES = 512 * 1024
"""The largest size of a schema, as JSON."""


def check_limits(schema: dict[str, Any]) -> None:
    """Check that a schema is within the limits.

    Raises:
        ValueError: The schema is not JSON, is too large or is nested too deeply.
    """
    try:
        size = len(json.dumps(schema))
        if size > MAX_BYTES:
            raise ValueError(f"the schema has {size} bytes; at most {MAX_BYTES} are allowed")
    except RecursionError as error:
        raise ValueError("the schema is nested too deeply") from error
    except TypeError as error:
        # For example a date, which TOML has and JSON has not.
        raise ValueError(
            f"the schema must be JSON: {error}. Write such a value as text."
        ) from error


JsonSchema = dict[str, Any]

Arguments = dict[str, Any]
"""The arguments of a call, by parameter."""

MAX_PROBLEMS = 10
"""How many problems with one call's arguments the model is shown."""


def read_arguments(text: str | None) -> dict[str, Any]:
    """Parse the arguments that a model wrote.

    Args:
        text: The model's text, usually JSON. None and blank text mean no arguments: some providers
            send them for tools without parameters.

    Raises:
        InvalidArguments: The text is not a JSON object. The message does not quote the text.
    """
    if text is None or not text.strip():
        return {}
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidArguments(
            f"The arguments are not valid JSON ({error.msg} at {where}). "
            "Call the tool again with one JSON object."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            "The arguments cannot be read: a number is too long or not finite, or they are nested "
            "too deeply. Call the tool again with simpler ones."
        ) from error
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            "The arguments must be one JSON object, such as {}. Call the tool again with one."
        )
    return arguments


def schema_check(schema: JsonSchema) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that checks arguments against a JSON Schema, and returns them unchanged.

    The function raises `InvalidArguments`.

    Raises:
        ValueError: `schema` is not a JSON Schema, refers to another document, or exceeds the limits
            of `check_limits`.
    """
    check_limits(schema)
    # Masked, because error messages must not quote arguments.
    validator = jsonschema_rs.validator_for(schema, retriever=_refuse_retrieval, mask="this value")

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            problems = [
                (error.instance_path, error.message) for error in validator.iter_errors(arguments)
            ]
        except ValueError as error:
            # The validator cannot represent some strings, such as lone surrogates.
            raise InvalidArguments(
                "An argument is not valid Unicode. Call the tool again without that text."
            ) from error
        if problems:
            raise invalid_arguments(problems)
        return arguments

    return check


def invalid_arguments(problems: Iterable[tuple[Sequence[str | int], str]]) -> InvalidArguments:
    """Return the error that shows a model the problems with its arguments.

    Args:
        problems: The path and a description of each problem.
    """
    problems = list(problems)
    lines = [
        f"{'.'.join(str(part) for part in path) or 'arguments'}: {what}"
        for path, what in problems[:MAX_PROBLEMS]
    ]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
    return InvalidArguments(f"The arguments are invalid. {'; '.join(lines)}.")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _refuse_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"a tool's schema cannot refer to another document: {uri}")


# --- Parameters ----------------------------------------------------------------------------------


class Parameter(NamedTuple):
    """A parameter that the model supplies."""

    kind: Any
    """The parameter's type; `Annotated` may add pydantic's constraints."""
    default: Any = ...
    """`...` if the parameter is required."""
    description: str | None = None


@dataclass(frozen=True)
class Parameters:
    """The parameters of a tool, with their types."""

    json_schema: JsonSchema
    """The schema for the model. It allows no other arguments."""
    model: type[BaseModel]
    names: Mapping[str, str]
    """Maps each field of `model` to the name of the parameter."""

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments converted to the parameters' types, with defaults.

        Raises:
            InvalidArguments: The arguments do not match. The message names the paths but quotes no
                values.
        """
        self._check_numbers(arguments)
        try:
            values = self.model.model_validate(arguments)
        except ValidationError as error:
            details = error.errors(include_input=False, include_context=False, include_url=False)
            raise invalid_arguments([(each["loc"], each["msg"]) for each in details]) from None
        return {name: getattr(values, field) for field, name in self.names.items()}

    def _check_numbers(self, arguments: dict[str, Any]) -> None:
        """Reject booleans in place of numbers: pydantic would convert them to 0 or 1.

        Raises:
            InvalidArguments: An argument is a boolean, and the schema requires a number.
        """
        problems = []
        # Errors of the validator are ignored: it rejects lone surrogates, which pydantic reports,
        # and some patterns that Python supports.
        with suppress(ValueError):
            for error in self._validator.iter_errors(arguments):
                if isinstance(_at(arguments, error.instance_path), bool):
                    problems.append((error.instance_path, error.message))
        if problems:
            raise invalid_arguments(problems)

    @cached_property
    def _validator(self) -> jsonschema_rs.Validator:
        return jsonschema_rs.validator_for(self.json_schema, mask="this value")


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for each in path:
        value = value[each]
    return value


def parameters_from_types(owner: str, parameters: Mapping[str, Parameter]) -> Parameters:
    """Build parameters from names and types.

    Args:
        owner: The tool's name, for errors.
        parameters: The parameters by name.

    Raises:
        RegistrationError: A type cannot be read from JSON.
    """
    # Fields are named p0, p1 …, because a parameter's name may be reserved by pydantic.
    names = {f"p{index}": name for index, name in enumerate(parameters)}
    fields: dict[str, Any] = {}
    for field, name in names.items():
        kind, default, description = parameters[name]
        # A description of None would override the one in `Annotated`.
        texts: dict[str, Any] = {"description": description} if description else {}
        fields[field] = (kind, Field(default, alias=name, **texts))
    try:
        model = create_model("Parameters", __config__=ConfigDict(extra="forbid"), **fields)
    except PydanticUserError as error:
        raise _not_describable(owner, error) from error
    return _parameters(owner, model, names)


def parameters_from_model(owner: str, model: type[BaseModel]) -> Parameters:
    """Return the fields of a pydantic model as parameters.

    Args:
        owner: The tool's name, for errors.
        model: The pydantic model. Unknown arguments are rejected, even if the model's own
            configuration ignores them.

    Raises:
        RegistrationError: A type cannot be read from JSON.
    """
    strict: type[BaseModel] = new_class(model.__name__, (model,), {"extra": "forbid"})
    return _parameters(owner, strict, {field: field for field in model.model_fields})


def _parameters(owner: str, model: type[BaseModel], names: Mapping[str, str]) -> Parameters:
    try:
        schema = model.model_json_schema(schema_generator=_WithoutTitles)
    except PydanticUserError as error:
        raise _not_describable(owner, error) from error
    schema.pop("title", None)
    return Parameters(schema, model, names)


def _not_describable(owner: str, error: PydanticUserError) -> RegistrationError:
    return RegistrationError(
        f"The parameters of {owner!r} cannot be described by a JSON Schema: {error.message}"
    )


class _WithoutTitles(GenerateJsonSchema):
    """Generates JSON Schemas without the titles that pydantic derives from names.

    The titles would cost tokens and do not help the model.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
