"""A tool's arguments: the model's text, its check against a bounded JSON Schema, and the values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""How large a schema may be, as JSON."""

MAX_CHECKS = 10_000
"""How many subschemas one value may be held against."""

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose subschemas are held against the same value (JSON Schema 2020-12, section 10.2)."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_limits(schema: dict[str, Any]) -> None:
    """Return if a schema is within the limits.

    Raises:
        ValueError: It is no JSON, too large, nested too deeply, or a value would have to be held
            against too many of its parts.
    """
    try:
        size = len(json.dumps(schema))
        if size > MAX_BYTES:
            raise ValueError(f"it has {size} bytes, of {MAX_BYTES} at most")
        costs = _Costs(schema)
        if any(costs.of(part) > MAX_CHECKS for part in _parts(schema)):
            raise ValueError(
                "its references multiply: a value would be held against too many parts"
            )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except TypeError as error:
        # TOML knows dates, for example.
        raise ValueError(f"it has to be JSON: {error}. Write such a value as text.") from error


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and everything in it that may be one."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _parts(each)


class _Costs:
    """How many subschemas a value is held against, by subschema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, schema: Any) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key not in self._known:
            self._known[key] = 0  # one that comes back to itself adds nothing
            below = sum(self.of(each) for each in self._in_place(schema))
            self._known[key] = min(1 + below, MAX_CHECKS + 1)
        return self._known[key]

    def _in_place(self, schema: dict[str, Any]) -> Iterator[Any]:
        for keyword in _IN_PLACE:
            each = schema.get(keyword)
            if isinstance(each, list):
                yield from each
            elif keyword == "dependentSchemas" and isinstance(each, dict):
                yield from each.values()
            elif each is not None:
                yield each
        for keyword in _REFERENCES:
            if isinstance(schema.get(keyword), str):
                yield self._referred(schema[keyword])

    def _referred(self, reference: str) -> Any:
        """Return what a reference within the schema points at; None where it is another's."""
        path = reference.removeprefix("#")
        found: Any = self._root
        for part in path.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict):
                found = found.get(name)
            else:
                return None
        return found


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
            of `tracer.tools.definition.arguments`.
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


# --- Parameters ----------------------------------------------------------------------------------


class Parameter(NamedTuple):
    """One parameter that a model fills."""

    kind: Any
    """Its type; `Annotated` carries pydantic's constraints."""
    default: Any = ...
    """`...` if it is required."""
    description: str | None = None


@dataclass(frozen=True)
class Parameters:
    """Named, typed parameters."""

    json_schema: JsonSchema
    """The schema that a model sees; it allows no other arguments."""
    model: type[BaseModel]
    names: Mapping[str, str]
    """The name of the parameter for each field of the model."""

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the types that the parameters declare, defaults filled in.

        Raises:
            InvalidArguments: They do not fit; the message names each place, and no value.
        """
        self._check_numbers(arguments)
        try:
            values = self.model.model_validate(arguments)
        except ValidationError as error:
            details = error.errors(include_input=False, include_context=False, include_url=False)
            raise invalid_arguments([(each["loc"], each["msg"]) for each in details]) from None
        return {name: getattr(values, field) for field, name in self.names.items()}

    def _check_numbers(self, arguments: dict[str, Any]) -> None:
        """Return if no boolean is given for a number: pydantic would convert it to 0 or 1.

        Raises:
            InvalidArguments: One does. In JSON Schema, true and false are no numbers.
        """
        problems = []
        # The validator cannot hold lone surrogates, which pydantic reports, and does not know every
        # pattern that Python does.
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
    """Return parameters of the given names and types.

    Args:
        owner: Whose they are, for errors.
        parameters: Each by its name.

    Raises:
        RegistrationError: A type cannot be filled from JSON.
    """
    # Fields are named p0, p1 …: a parameter may have a name that pydantic keeps for itself.
    names = {f"p{index}": name for index, name in enumerate(parameters)}
    fields: dict[str, Any] = {}
    for field, name in names.items():
        kind, default, description = parameters[name]
        # A description of None would hide the one that `Annotated` carries.
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
        owner: Whose they are, for errors.
        model: The model. Unknown arguments are rejected, even if the model ignores them.

    Raises:
        RegistrationError: A type cannot be filled from JSON.
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
        f"The parameters of {owner!r} can't be described to a model: {error.message}"
    )


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles that pydantic derives from names: they are useless to a model."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
