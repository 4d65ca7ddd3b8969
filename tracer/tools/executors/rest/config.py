"""What a REST tool is made of: where it sends what, and what it takes out of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Literal

import httpx2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    model_validator,
)

from tracer.errors import ConfigurationError
from tracer.tools.executors.rest.address_guard import allowed_host
from tracer.tools.executors.rest.templates import placeholders
from tracer.tools.executors.secrets import SecretReference, checked_reference, is_literal_secret

QUERY_METHODS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods whose arguments go into the query where nothing else is said."""

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that mean the same when they arrive twice."""

_OF_SECRETS = frozenset({"authorization", "cookie", "proxy-authorization"})
# fmt: off
_OF_THE_RUNTIME = frozenset({
    "accept-encoding", "connection", "content-length", "host", "idempotency-key", "te", "trailer",
    "traceparent", "tracestate", "transfer-encoding", "upgrade",
})
# fmt: on

Scalar = str | bool | int | float


def checked_base_url(base_url: str) -> httpx2.URL:
    """Return a base URL, taken apart.

    Raises:
        ValueError: It is no `http` or `https` URL, or has a query, a fragment or credentials.
    """
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise ValueError("the base URL cannot be read") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("a base URL begins with http:// or https:// and names a host")
    if url.userinfo or url.query or url.fragment:
        # Not repeated: it may hold a password.
        raise ValueError("a base URL has no credentials (use `auth`), no query and no fragment")
    return url


def _checked_base(base: str | Callable[[], str]) -> str | Callable[[], str]:
    if isinstance(base, str):
        checked_base_url(base)
    return base


CALLER_TOKEN = "caller:token"
"""The reference to the caller's token, which differs from call to call."""


def _checked_secret(secret: str | Callable[[], SecretStr]) -> str | Callable[[], SecretStr]:
    if callable(secret) or secret == CALLER_TOKEN:
        return secret
    return checked_reference(secret)


CallSecret = Annotated[str | Callable[[], SecretStr], AfterValidator(_checked_secret)]
"""Where a call's secret is: `env:NAME`, `file:PATH`, `caller:token`, or a function that returns it
if it is known at run time only."""


def _checked_path(path: str) -> str:
    if set("?#\\") & set(path):
        raise ValueError("a path has no query (use `query`), no fragment and no backslash")
    segments = path.removeprefix("/").removesuffix("/").split("/")
    if path.strip("/") and not all(segments):
        raise ValueError("a path has no empty segments")
    if {".", ".."} & set(segments):
        raise ValueError("a path has no dot segments")
    placeholders(path)
    return path


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if name.lower() in _OF_SECRETS or is_literal_secret(name, value):
            raise ValueError(
                f"the header {name} holds a secret. Set it as an environment variable, and write "
                'auth = { type = "bearer", secret = "env:NAME" } or '
                f'auth = {{ type = "header", name = "{name}", secret = "env:NAME" }}'
            )
        if name.lower() in _OF_THE_RUNTIME:
            raise ValueError(f"{name} is set by the runtime")
    placeholders(dict(headers))
    return headers


def _checked_query(query: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    for name, value in query.items():
        if is_literal_secret(name, value):
            raise ValueError(
                f"the query parameter {name} holds a secret. Set it as an environment variable, "
                f'and write auth = {{ type = "query", name = "{name}", secret = "env:NAME" }}'
            )
    placeholders(dict(query))
    return query


def _checked_template(template: JsonValue) -> JsonValue:
    placeholders(template)
    return template


def _checked_hosts(hosts: frozenset[str]) -> frozenset[str]:
    for each in hosts:
        try:
            allowed_host(each)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
    return hosts


class _Settings(BaseModel):
    # What is wrong is told without what was given: it may be a secret in the wrong place.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class BearerAuth(_Settings):
    """`Authorization: Bearer …`."""

    type: Literal["bearer"] = "bearer"
    secret: CallSecret
    """The token's reference. `caller:token` sends the token of the call's caller."""


class BasicAuth(_Settings):
    """`Authorization: Basic …`."""

    type: Literal["basic"] = "basic"
    username: str
    secret: SecretReference
    """The password's reference."""


class HeaderAuth(_Settings):
    """A header of the other side's own, such as `X-Api-Key`."""

    type: Literal["header"] = "header"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
    """The header's name."""
    secret: CallSecret
    """Its value's reference. `caller:token` sends the token of the call's caller."""


class QueryAuth(_Settings):
    """A query parameter. Prefer a header if the API takes one: servers and proxies log URLs."""

    type: Literal["query"] = "query"
    name: Annotated[str, Field(min_length=1)]
    """The parameter's name."""
    secret: CallSecret
    """Its value's reference. `caller:token` sends the token of the call's caller."""


Auth = BearerAuth | BasicAuth | HeaderAuth | QueryAuth
"""How a tool shows who it is."""


class RestConfig(_Settings):
    """The request that a REST tool sends, and what it makes of the answer.

    `{argument}` in a path, a header, a query or a body stands for that argument. A template that is
    nothing else keeps the argument's type, and is left out where the argument is absent; `{{` is a
    brace.
    """

    base_url: Annotated[str | Callable[[], str], AfterValidator(_checked_base)]
    """Where the API is; a function where the address is known at run time only."""
    method: Annotated[
        Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"],
        BeforeValidator(lambda method: method.upper() if isinstance(method, str) else method),
    ] = "GET"
    path: Annotated[str, AfterValidator(_checked_path)] = ""
    """What follows the base URL: `/patients/{patient_id}`. An argument stays in its segment."""
    headers: Annotated[Mapping[str, str], AfterValidator(_checked_headers)] = {}
    """Headers by name. A secret's place is `auth`."""
    query: Annotated[Mapping[str, Scalar], AfterValidator(_checked_query)] = {}
    """The query by name: templates (`units = "{unit}"`) or fixed values (`limit = 10`). A list
    repeats the name. A secret's place is `auth`."""
    body: Annotated[JsonValue, AfterValidator(_checked_template)] = None
    """The JSON body, templates at any depth. Unless given, the arguments that are used nowhere
    else: as a JSON object, or in the query of a GET, HEAD, DELETE or OPTIONS."""
    auth: Annotated[Auth, Field(discriminator="type")] | None = None
    """How the tool shows who it is: `{ type = "bearer", secret = "env:WEATHER_TOKEN" }`, `basic`
    with a `username`, or `header` or `query` with a `name`."""
    idempotency_key: bool = False
    """Whether to send `Idempotency-Key`: the tool call's id, the same at each attempt. For APIs
    that heed it; POST and PATCH may be retried then."""
    response: str | Mapping[str, str] | None = None
    """Where the result is in the JSON answer, as a JSON pointer or a dotted path: one for the
    result itself (`"/items/0"`), or one for each name of an object. Unless given, the answer as it
    is: JSON where it says so, else text."""
    read_timeout: Annotated[float, Field(gt=0)] = 20.0
    """For how many seconds the other side may be silent. The whole call has the tool's timeout."""
    max_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024
    """How large the answer may be, once it is unpacked."""
    allowed_hosts: Annotated[frozenset[str], AfterValidator(_checked_hosts)] = frozenset()
    """Hosts of the internal network that the tool may reach, as the URL names them: `host`, or
    `host:port`. Public addresses need no leave."""

    @model_validator(mode="after")
    def _body_has_a_place(self) -> RestConfig:
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise ValueError(f"a {self.method} has no body: use `query`")
        return self

    @property
    def is_repeatable(self) -> bool:
        """Whether the request means the same when it arrives twice."""
        return self.method in REPEATABLE_METHODS or self.idempotency_key

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The arguments that have a place of their own."""
        return placeholders([self.path, dict(self.headers), dict(self.query), self.body])
