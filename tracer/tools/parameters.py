"""A tool's parameters: their JSON Schema, and the check of what a model gave for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import new_class
from typing import Any, NamedTuple

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from tracer.errors import RegistrationError
from tracer.tools.arguments import JsonSchema, invalid_arguments


class Parameter(NamedTuple):
    """One parameter that a model fills."""

    kind: Any
    """Its type; `Annotated` carries pydantic's constraints."""
    default: Any = ...
    """`...` where it has to be given."""
    description: str | None = None


@dataclass(frozen=True)
class Parameters:
    """Named, typed parameters."""

    json_schema: JsonSchema
    """What a model sees; nothing beside the parameters may be given."""
    model: type[BaseModel]
    names: Mapping[str, str]
    """The parameter that each field of the model stands for."""

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
        model: The model; what it does not know is refused even where it would ignore it.

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
    """Leaves out the titles that pydantic makes of names: they tell a model nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
