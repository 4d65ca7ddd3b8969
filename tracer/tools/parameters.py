"""The parameters of a tool: those that the model supplies, and those that the runtime fills.

Arguments are parsed and checked. A hidden parameter is filled by the runtime; the model neither
sees nor supplies it.
"""

from __future__ import annotations

import inspect
import json
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from json import dumps
from types import UnionType, new_class
from typing import Annotated, Any, NamedTuple, NewType, NoReturn, Union, get_args, get_origin
from urllib.parse import quote, quote_plus, unquote

import jsonschema_rs
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    SecretStr,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from tracer.concurrency import is_generator
from tracer.errors import InvalidArguments, RegistrationError
from tracer.text import storable

# --- Parse the arguments that a model wrote, and check them against a tool's parameters.

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
    for short, name in names.items():
        kind, default, description = parameters[name]
        # A description of None would override the one in `Annotated`.
        texts: dict[str, Any] = {"description": description} if description else {}
        fields[short] = (kind, Field(default, alias=name, **texts))
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


# --- Hidden parameters: the runtime fills them, and the model neither sees nor supplies them.
#
# A parameter is hidden by its type (`ToolContext`, `RunContext`, `SessionState`, `TokenId`,
# `UserId`, `User`, `Agent`), by a mark (`Annotated[Ledger, Hidden(open_ledger)]`), or by its tool's
# option `hidden`. If the model supplies an argument of that name, in any spelling, the value is
# discarded before hooks and tool see it, and the name is recorded. A field of that name inside
# another argument is kept.

TokenId = NewType("TokenId", str)
TokenId.__doc__ = "The token that identifies the caller. A parameter of this type is hidden."

UserId = NewType("UserId", str)
UserId.__doc__ = (
    "The caller's user id, as the token resolver returned it. A parameter of this type is hidden."
)


@dataclass(frozen=True)
class User:
    """A caller, as returned by a token resolver. A parameter of this type is hidden."""

    user_id: str = field(repr=False)
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Facts about the user, for `{user_info}` in instructions."""
    time_zone: str | None = field(default=None, repr=False)
    """The IANA name of the user's time zone, such as `Asia/Shanghai`, for `{current_date}`. If it
    is None or unknown, the application's time zone is used."""


TokenResolver = Callable[[str], Awaitable[User | str | None] | User | str | None]
"""Returns the user that a caller's token belongs to, or the user's id. None: no such user."""


def token_is_user_id(token_id: str) -> str:
    """Use the token itself as the user's id. This is the default token resolver."""
    return token_id


class CallingAgent:
    """An agent, as tools and their calls see it. A parameter of a derived class is hidden."""

    tool_hooks: Sequence[Any]
    """The hooks around each tool that the agent calls, the first outermost."""


Provider = Callable[..., Any]
"""Returns a hidden parameter's value, or an awaitable of the value. A provider that has a parameter
receives the `ToolContext`."""


@dataclass(frozen=True)
class Hidden:
    """Marks a parameter as hidden: `Annotated[UserId, Hidden()]`."""

    provider: Provider | None = None
    """Returns the parameter's value. None: the parameter's type determines the value."""
    aliases: tuple[str, ...] = ()
    """Other names under which a model might supply the parameter."""


REQUIRED: Any = ...
"""Means that a parameter about the caller has no default. A call without a caller is rejected."""


@dataclass(frozen=True)
class HiddenParameter:
    """A parameter that the runtime fills."""

    kind: Any
    """The parameter's type, without `Annotated`."""
    provider: Provider | None = field(default=None, repr=False)
    aliases: tuple[str, ...] = ()
    default: Any = REQUIRED
    """If the parameter is about the caller: its value for a call without a caller."""

    @property
    def type_name(self) -> str:
        """The type's name, for display."""
        return getattr(self.kind, "__name__", str(self.kind))


def is_about_caller(parameter: HiddenParameter | None, name: str) -> bool:
    """Return whether the caller determines a parameter; None: the tool hides no such parameter."""
    if parameter is None:
        return name == "token_id"
    return parameter.provider is None and parameter.kind in (TokenId, UserId, User)


def hidden_parameter(
    name: str, kind: Any, hiding_types: Collection[Any], default: Any = REQUIRED
) -> HiddenParameter | None:
    """Return the definition of a hidden parameter; None if the model supplies it.

    Args:
        name: The parameter's name, for the error.
        kind: Its type hint, including `Annotated`.
        hiding_types: The types that hide a parameter without a mark.
        default: Its default; `REQUIRED` if it has none.

    Raises:
        RegistrationError: The parameter is marked as hidden, but has neither a provider nor a
            hiding type.
    """
    mark, aliases = _mark(kind)
    of_type = _known_type(kind, hiding_types)
    if mark is None and of_type is None:
        _check_nothing_within(name, kind, hiding_types)
        return None
    if mark is not None and mark.provider is not None:
        if is_generator(mark.provider):
            raise RegistrationError(
                f"The provider of the hidden parameter {name!r} is a generator: return the value "
                "instead of yielding it."
            )
        return HiddenParameter(_bare(kind), mark.provider, (*mark.aliases, *aliases), default)
    if of_type is None:
        raise RegistrationError(
            f"The hidden parameter {name!r} has the type {_bare(kind)!r}, which does not determine "
            "its value. Give it a provider: Hidden(get_value)."
        )
    return HiddenParameter(of_type, None, (*(mark.aliases if mark else ()), *aliases), default)


def _underlying_types(kind: Any) -> Iterator[Any]:
    """Yield a type hint, and the types inside its `Annotated`, `NewType` or `Union`."""
    yield kind
    if get_origin(kind) is Annotated:
        yield from _underlying_types(kind.__origin__)
    elif get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from _underlying_types(each)
    elif isinstance(kind, NewType):
        yield from _underlying_types(kind.__supertype__)


def _mark(kind: Any) -> tuple[Hidden | None, tuple[str, ...]]:
    """Return the `Hidden` mark of a type hint, and its pydantic aliases."""
    mark: Hidden | None = None
    aliases: list[str] = []
    for part in _underlying_types(kind):
        for each in getattr(part, "__metadata__", ()):
            if isinstance(each, Hidden):
                mark = mark or each
            elif each is Hidden:
                mark = mark or Hidden()
            elif isinstance(each, FieldInfo):
                for alias in (each.alias, each.validation_alias):
                    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
                    aliases += [choice for choice in choices if isinstance(choice, str)]
    return mark, tuple(aliases)


def _known_type(kind: Any, hiding_types: Collection[Any]) -> Any:
    """Return the hiding type that a type hint contains or is derived from.

    Return None if the type hint does not hide a parameter.
    """
    for part in _underlying_types(kind):
        for each in hiding_types:
            if part is each:
                return each
            if isinstance(part, type) and isinstance(each, type) and issubclass(part, each):
                return each
    return None


def _check_nothing_within(name: str, kind: Any, hiding_types: Collection[Any]) -> None:
    """Check that the type of a visible parameter contains no hiding type, such as `list[UserId]`.

    Raises:
        RegistrationError: The type contains a hiding type, so the model would have to supply a
            value that must be hidden.
    """
    for part in get_args(kind):
        if _mark(part)[0] is not None or _known_type(part, hiding_types) is not None:
            raise RegistrationError(
                f"The parameter {name!r} contains a hidden type, {kind!r}, but the model supplies "
                "the parameter. Make the hidden part a parameter of its own."
            )
        _check_nothing_within(name, part, hiding_types)


def _bare(kind: Any) -> Any:
    return kind.__origin__ if get_origin(kind) is Annotated else kind


async def provided(provider: Provider, context: Any) -> Any:
    """Return a provider's value for one call."""
    wants_context = any(
        each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.KEYWORD_ONLY)
        for each in inspect.signature(provider).parameters.values()
    )
    value = provider(context) if wants_context else provider()
    return await value if isinstance(value, Awaitable) else value


def without_absent(arguments: Mapping[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Return a remote call's arguments without the hidden ones that have no value.

    Some hidden values are absent if the call has no caller. They are omitted, because the other
    side may not accept null.
    """
    return {
        name: each for name, each in arguments.items() if each is not None or name not in hidden
    }


# --- Forged arguments --------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def normalized_name(name: str) -> str:
    """Return a form of a name that is the same for `tokenId`, `TOKEN-ID` and `token_id`."""
    plain = unicodedata.normalize("NFKC", name)
    return "".join(each for each in plain if each not in "_- .").casefold()


RESERVED_PARAMETERS = frozenset(map(normalized_name, ("token_id", "toolcall_id", "tool_context")))
"""Normalized names of parameters that a model must never supply."""


def forbidden_names(hidden: Mapping[str, HiddenParameter]) -> frozenset[str]:
    """Return the normalized names that the model must not supply."""
    names = [*hidden, *(alias for each in hidden.values() for alias in each.aliases)]
    return frozenset(map(normalized_name, names))


def without_forged(
    arguments: Mapping[str, Any], forbidden: frozenset[str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the arguments that the model may supply, and the names of the others.

    Args:
        arguments: JSON values by parameter.
        forbidden: The names that `forbidden_names` returned.
    """
    forged = frozenset(
        each for each in arguments if forbidden and normalized_name(each) in forbidden
    )
    return {name: each for name, each in arguments.items() if name not in forged}, forged


def visible_schema(
    owner: str, schema: JsonSchema, hidden: Mapping[str, HiddenParameter]
) -> JsonSchema:
    """Return a tool's JSON Schema without its hidden parameters.

    Args:
        owner: The tool's name, for errors.
        schema: The schema of the tool's arguments, an object.
        hidden: The tool's hidden parameters.

    Raises:
        RegistrationError: A visible parameter has the name of a hidden parameter in another
            spelling; a hidden parameter is not directly in `properties`; or the schema has a
            reserved name.
    """
    properties = schema.get("properties")
    if isinstance(properties, dict) and not hidden.keys().isdisjoint(properties):
        shown = {name: each for name, each in properties.items() if name not in hidden}
        schema = {**schema, "properties": shown}
        if isinstance(required := schema.get("required"), list):
            schema["required"] = [name for name in required if name not in hidden]
    forbidden = forbidden_names(hidden)
    for name in parameter_names(schema):
        if normalized_name(name) in forbidden:
            raise RegistrationError(
                f"The tool {owner!r} has a visible parameter {name!r}, and a hidden parameter with "
                "the same name, perhaps in another spelling. Rename one, and write both directly "
                "under `properties`."
            )
    for name in _field_names(schema):
        if normalized_name(name) in RESERVED_PARAMETERS:
            raise RegistrationError(
                f"The tool {owner!r} asks the model for {name!r}, which only the runtime may fill. "
                "Hide it: declare it as TokenId or ToolContext, or give the tool the option "
                f'hidden={{{name!r}: TokenId}} (in tools.toml: hidden = {{ {name} = "token" }}). '
                "Otherwise rename it."
            )
    return schema


def parameter_names(schema: JsonSchema) -> frozenset[str]:
    """Return the names of a tool's parameters: the properties at the top level of its JSON Schema.

    Properties of the subschemas that apply to the same object are included (`$ref`, `allOf`, `if`
    and so on; JSON Schema 2020-12, sections 10.2 and 8.2.3).
    """
    names: set[str] = set()
    seen: set[int] = set()

    def add(each: Any) -> None:
        if not isinstance(each, dict) or id(each) in seen:
            return
        seen.add(id(each))
        properties = each.get("properties")
        names.update(properties if isinstance(properties, dict) else ())
        for key in ("if", "then", "else"):
            add(each.get(key))
        for key in ("allOf", "anyOf", "oneOf"):
            branches = each.get(key)
            for branch in branches if isinstance(branches, list) else ():
                add(branch)
        dependent = each.get("dependentSchemas")
        for branch in dependent.values() if isinstance(dependent, dict) else ():
            add(branch)
        reference = each.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            add(_resolved(schema, reference))

    add(schema)
    return frozenset(names)


def _resolved(schema: Any, reference: str) -> Any:
    """Return the part of a schema that a JSON pointer names (RFC 6901); None if there is none."""
    for token in unquote(reference[1:]).split("/")[1:]:
        if not isinstance(schema, dict):
            return None
        schema = schema.get(token.replace("~1", "/").replace("~0", "~"))
    return schema


def _field_names(schema: Any) -> Iterator[str]:
    """Yield the names of all fields that a JSON Schema describes, at any depth."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for each in schema.values():
            yield from _field_names(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _field_names(each)


# --- Scrubbing hidden values -------------------------------------------------------------------

SHORTEST_SECRET = 6
"""Shorter hidden values are not scrubbed, because they may occur in any text by chance."""

HIDDEN = "[hidden]"


class Secrets:
    """The hidden values of one call, for scrubbing them from the tool's results and errors."""

    def __init__(self) -> None:
        self._forms: set[str] = set()

    def add(self, value: object) -> None:
        """Add a hidden value. Values other than text and `User` are ignored."""
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if isinstance(value, User):
            value = value.user_id
        if isinstance(value, str) and len(value) >= SHORTEST_SECRET:
            self._forms |= _forms(value)

    def scrub(self, text: str) -> str:
        """Remove the hidden values from `text`, in each encoding that `_forms` returns."""
        for form in sorted(self._forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text


def _forms(value: str) -> set[str]:
    """Return the encodings of a value that may occur in a text: plain, JSON, Python, URL."""
    forms = {
        value,
        storable(value),
        *_json_forms(value),
        repr(value)[1:-1],
        # As in the repr of a string that contains both kinds of quotes.
        repr(value + "\"'")[1:-4],
        quote(value, safe="", errors="surrogatepass"),
        quote(value, errors="surrogatepass"),
        quote_plus(value, errors="surrogatepass"),
    }
    return forms | {form for text in forms for form in _json_forms(text)}


def _json_forms(value: str) -> set[str]:
    return {dumps(value)[1:-1], dumps(value, ensure_ascii=False)[1:-1]}
