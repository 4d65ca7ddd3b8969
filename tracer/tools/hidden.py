"""Hidden parameters: what a tool gets from the runtime, and a model neither sees nor fills.

A parameter is hidden by its type (`ToolContext`, `RunContext`, `SessionState`, `TokenId`, `UserId`,
`User`), or where it is marked: `Annotated[Ledger, Hidden(open_ledger)]`. What a model gives under
its name, anywhere in the arguments and however it spells it, is taken out before anything else
sees it.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from json import dumps
from types import UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin
from urllib.parse import quote, quote_plus

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo

from tracer.errors import RegistrationError
from tracer.text import storable
from tracer.tools.arguments import JsonSchema

TokenId = NewType("TokenId", str)
"""What the caller showed to say who they are; hidden wherever a tool declares it."""

UserId = NewType("UserId", str)
"""The caller's user id, as the token resolver found it; hidden wherever a tool declares it."""


@dataclass(frozen=True)
class User:
    """Who a token belongs to, as a token resolver answers; hidden wherever a tool declares it."""

    user_id: str = field(repr=False)
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is known of them, for `{user_info}` in instructions."""


Provider = Callable[..., Any]
"""Answers a hidden parameter's value, at once or awaited; called with the `ToolContext`, or with
nothing where it takes nothing."""


@dataclass(frozen=True)
class Hidden:
    """Marks a parameter as hidden: `Annotated[UserId, Hidden()]`."""

    provider: Provider | None = None
    """Where the value comes from; None: the type says it."""
    aliases: tuple[str, ...] = ()
    """Other names under which a model might try to give it."""


@dataclass(frozen=True)
class HiddenParameter:
    """A parameter that the runtime fills."""

    kind: Any
    """Its type, without the mark."""
    provider: Provider | None = field(default=None, repr=False)
    aliases: tuple[str, ...] = ()

    @property
    def type_name(self) -> str:
        """The type's name, for people."""
        return getattr(self.kind, "__name__", str(self.kind))


def hidden_parameter(name: str, kind: Any, known: Collection[Any]) -> HiddenParameter | None:
    """Return what hides a parameter; None where a model fills it.

    Args:
        name: The parameter's name, for the error.
        kind: Its type hint, `Annotated` included.
        known: The types that hide a parameter by themselves.

    Raises:
        RegistrationError: It is marked as hidden, and nothing says where its value comes from.
    """
    mark, aliases = _mark(kind)
    of_type = _known_type(kind, known)
    if mark is None and of_type is None:
        _check_nothing_within(name, kind, known)
        return None
    if mark is not None and mark.provider is not None:
        return HiddenParameter(_bare(kind), mark.provider, (*mark.aliases, *aliases))
    if of_type is None:
        raise RegistrationError(
            f"The hidden parameter {name!r} has the type {_bare(kind)!r}, which says nothing of "
            "where its value comes from: give it a provider, Hidden(get_value)."
        )
    return HiddenParameter(of_type, aliases=(*(mark.aliases if mark else ()), *aliases))


def _stands_for(kind: Any) -> Iterator[Any]:
    """Yield a hint, and what it is another name, a marked form or a union of."""
    yield kind
    if get_origin(kind) is Annotated:
        yield from _stands_for(kind.__origin__)
    elif get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from _stands_for(each)
    elif isinstance(kind, NewType):
        yield from _stands_for(kind.__supertype__)


def _mark(kind: Any) -> tuple[Hidden | None, tuple[str, ...]]:
    """Return a type hint's mark, and the aliases that pydantic knows it by."""
    mark: Hidden | None = None
    aliases: list[str] = []
    for part in _stands_for(kind):
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


def _known_type(kind: Any, known: Collection[Any]) -> Any:
    """Return the known type that a hint stands for; None where it is another."""
    for part in _stands_for(kind):
        for each in known:
            if part is each:
                return each
            if isinstance(part, type) and isinstance(each, type) and issubclass(part, each):
                return each
    return None


def _check_nothing_within(name: str, kind: Any, known: Collection[Any]) -> None:
    """Return if nothing hidden is inside of what a model fills, such as in a list.

    Raises:
        RegistrationError: Something is: the model would fill it.
    """
    for part in get_args(kind):
        if _mark(part)[0] is not None or _known_type(part, known) is not None:
            raise RegistrationError(
                f"The parameter {name!r} has something hidden within what a model fills, {kind!r}: "
                "make it a parameter of its own."
            )
        _check_nothing_within(name, part, known)


def _bare(kind: Any) -> Any:
    return kind.__origin__ if get_origin(kind) is Annotated else kind


async def provided(provider: Provider, context: Any) -> Any:
    """Return what a provider answers for one call."""
    wants_context = any(
        each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.KEYWORD_ONLY)
        for each in inspect.signature(provider).parameters.values()
    )
    value = provider(context) if wants_context else provider()
    return await value if isinstance(value, Awaitable) else value


# --- What a model forged -----------------------------------------------------------------------


@lru_cache(maxsize=4096)
def spelt_alike(name: str) -> str:
    """Return what all spellings of a name have in common: `tokenId`, `TOKEN-ID`, `token_id`."""
    plain = unicodedata.normalize("NFKC", name)
    return "".join(each for each in plain if each not in "_- .").casefold()


def forbidden_names(hidden: Mapping[str, HiddenParameter]) -> frozenset[str]:
    """Return the names, spelt alike, that a model may not give."""
    names = [*hidden, *(alias for each in hidden.values() for alias in each.aliases)]
    return frozenset(map(spelt_alike, names))


def without_forged(
    arguments: Mapping[str, Any], forbidden: frozenset[str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return arguments without what a model may not give, and the dotted names of what it gave.

    Args:
        arguments: JSON values.
        forbidden: From `forbidden_names`.
    """
    if not forbidden:
        return dict(arguments), frozenset()
    forged: set[str] = set()

    def clean(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            kept = {}
            for name, each in value.items():
                if spelt_alike(str(name)) in forbidden:
                    forged.add(f"{path}{name}")
                else:
                    kept[name] = clean(each, f"{path}{name}.")
            return kept
        if isinstance(value, (list, tuple)):
            return [clean(each, f"{path}{index}.") for index, each in enumerate(value)]
        return value

    return clean(arguments, ""), frozenset(forged)


def check_no_visible_twin(
    owner: str, schema: JsonSchema, hidden: Mapping[str, HiddenParameter]
) -> None:
    """Return if nothing that a model fills is named like something hidden.

    Raises:
        RegistrationError: It is: what the model gave for it would be taken out as forged.
    """
    forbidden = forbidden_names(hidden)
    for name in field_names(schema):
        if spelt_alike(name) in forbidden:
            raise RegistrationError(
                f"{owner!r} has a hidden parameter and a visible field that are both called "
                f"{name!r}, in some spelling: rename one."
            )


def field_names(schema: Any) -> Iterator[str]:
    """Yield the names of all fields that a JSON Schema describes, at whatever depth."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, dict) else ()
        for each in schema.values():
            yield from field_names(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from field_names(each)


# --- What is hidden stays hidden ---------------------------------------------------------------

SHORTEST_SECRET = 6
"""Hidden values shorter than this are not taken out of what a tool says: they may be anything."""

HIDDEN = "[hidden]"


class Secrets:
    """The hidden values of one call, to be taken out of what its tool says."""

    def __init__(self) -> None:
        self._forms: set[str] = set()

    def add(self, value: object) -> None:
        """Keep a hidden value; only text can be found again."""
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if isinstance(value, User):
            value = value.user_id
        if isinstance(value, str) and len(value) >= SHORTEST_SECRET:
            self._forms |= _forms(value)

    def scrub(self, text: str) -> str:
        """Return `text` without the hidden values, also as JSON and Python write them."""
        for form in sorted(self._forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text


def _forms(value: str) -> set[str]:
    """Return the forms in which a text may stand in another: each by itself, and within JSON."""
    forms = {
        value,
        storable(value),
        *_json_forms(value),
        repr(value)[1:-1],
        # As a part of something that holds both kinds of quotes.
        repr(value + "\"'")[1:-4],
        quote(value, safe="", errors="surrogatepass"),
        quote(value, errors="surrogatepass"),
        quote_plus(value, errors="surrogatepass"),
    }
    return forms | {form for text in forms for form in _json_forms(text)}


def _json_forms(value: str) -> set[str]:
    return {dumps(value)[1:-1], dumps(value, ensure_ascii=False)[1:-1]}
