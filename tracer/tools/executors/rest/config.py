"""The configuration of a REST tool: the request, and the part of the response that it returns."""

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
"""The HTTP methods for which arguments go into the query by default."""

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Idempotent methods (RFC 9110, section 9.2.2)."""

_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
# fmt: off
_RUNTIME_HEADERS = frozenset({
    "accept-encoding", "connection", "content-length", "host", "idempotency-key", "te", "trailer",
    "traceparent", "tracestate", "transfer-encoding", "upgrade",
})
# fmt: on

Scalar = str | bool | int | float


def checked_base_url(base_url: str) -> httpx2.URL:
    """Parse a base URL.

    Raises:
        ValueError: The text is not an `http` or `https` URL, or the URL has a query, a fragment or
            credentials.
    """
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        raise ValueError("the base URL is not a valid URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("a base URL must begin with http:// or https:// and contain a host")
    if url.userinfo or url.query or url.fragment:
        # Not quoted, because it may contain a password.
        raise ValueError("a base URL must not have credentials (use `auth`), a query or a fragment")
    return url


def _checked_base(base: str | Callable[[], str]) -> str | Callable[[], str]:
    if isinstance(base, str):
        checked_base_url(base)
    return base


CALLER_TOKEN = "caller:token"
"""Refers to the token of the call's caller."""


def _checked_secret(secret: str | Callable[[], SecretStr]) -> str | Callable[[], SecretStr]:
    if callable(secret) or secret == CALLER_TOKEN:
        return secret
    return checked_reference(secret)


CallSecret = Annotated[str | Callable[[], SecretStr], AfterValidator(_checked_secret)]
"""A reference to a secret: `env:NAME`, `file:PATH`, `caller:token`; or a function that returns the
secret, if it is known only at run time."""


def _checked_path(path: str) -> str:
    if set("?#\\") & set(path):
        raise ValueError("a path must not have a query (use `query`), a fragment or a backslash")
    segments = path.removeprefix("/").removesuffix("/").split("/")
    if path.strip("/") and not all(segments):
        raise ValueError("a path must not have empty segments")
    if {".", ".."} & set(segments):
        raise ValueError("a path must not have a segment . or .. in it")
    return path


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if name.lower() in _SECRET_HEADERS or is_literal_secret(name, value):
            raise ValueError(
                f"the header {name} is a secret. Set it as an environment variable, and write "
                'auth = { type = "bearer", secret = "env:NAME" } or '
                f'auth = {{ type = "header", name = "{name}", secret = "env:NAME" }}'
            )
        if name.lower() in _RUNTIME_HEADERS:
            raise ValueError(f"the header {name} is set by the runtime: remove it")
    return headers


def _checked_query(query: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    for name, value in query.items():
        if is_literal_secret(name, value):
            raise ValueError(
                f"the query parameter {name} is a secret. Set it as an environment variable, "
                f'and write auth = {{ type = "query", name = "{name}", secret = "env:NAME" }}'
            )
    return query


def _checked_hosts(hosts: frozenset[str]) -> frozenset[str]:
    for each in hosts:
        try:
            allowed_host(each)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
    return hosts


class _Settings(BaseModel):
    # Error messages must not quote the input, which may be a secret in the wrong field.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class BearerAuth(_Settings):
    """`Authorization: Bearer …`."""

    type: Literal["bearer"] = "bearer"
    secret: CallSecret
    """The reference to the token. `caller:token` sends the token of the call's caller."""


class BasicAuth(_Settings):
    """`Authorization: Basic …`."""

    type: Literal["basic"] = "basic"
    username: str
    secret: SecretReference
    """The reference to the password."""


class HeaderAuth(_Settings):
    """A header that the API defines, such as `X-Api-Key`."""

    type: Literal["header"] = "header"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
    """The header's name."""
    secret: CallSecret
    """The reference to the header's value. `caller:token` sends the token of the call's caller."""


class QueryAuth(_Settings):
    """A query parameter. Prefer a header if the API accepts one: servers and proxies log URLs."""

    type: Literal["query"] = "query"
    name: Annotated[str, Field(min_length=1)]
    """The parameter's name."""
    secret: CallSecret
    """The reference to the parameter's value. `caller:token` sends the token of the caller."""


Auth = BearerAuth | BasicAuth | HeaderAuth | QueryAuth
"""How a tool authenticates itself."""


class RestConfig(_Settings):
    """The request that a REST tool sends, and the result that it returns.

    `{argument}` in a path, a header, a query or a body is replaced by that argument. A template
    that is a single placeholder keeps the argument's type, and is omitted if the argument is
    absent. `{{` is a literal brace.
    """

    base_url: Annotated[str | Callable[[], str], AfterValidator(_checked_base)]
    """The URL of the API; a function if it is known only at run time."""
    method: Annotated[
        Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"],
        BeforeValidator(lambda method: method.upper() if isinstance(method, str) else method),
    ] = "GET"
    path: Annotated[str, AfterValidator(_checked_path)] = ""
    """The path after the base URL: `/patients/{patient_id}`. An argument cannot add segments
    to the path."""
    headers: Annotated[Mapping[str, str], AfterValidator(_checked_headers)] = {}
    """Headers by name. Secrets belong in `auth`."""
    query: Annotated[Mapping[str, Scalar], AfterValidator(_checked_query)] = {}
    """The query by name: templates (`units = "{unit}"`) or fixed values (`limit = 10`). A list
    becomes several parameters of this name. Secrets belong in `auth`."""
    body: JsonValue = None
    """The JSON body, with templates at any depth. By default, a JSON object of the arguments that
    no template uses. A GET, HEAD, DELETE or OPTIONS sends these in the query instead."""
    auth: Annotated[Auth, Field(discriminator="type")] | None = None
    """How the tool authenticates: `{ type = "bearer", secret = "env:WEATHER_TOKEN" }`, `basic`
    with a `username`, or `header` or `query` with a `name`."""
    idempotency_key: bool = False
    """Whether to send `Idempotency-Key`: the tool call's id, the same at each attempt. Set it if
    the API supports the header; POST and PATCH may then be retried."""
    response: Annotated[str, Field(pattern="^(/.*)?$")] | None = None
    """A JSON pointer (RFC 6901) to the result in the JSON response: `"/items/0"`. By default, the
    result is the whole response: parsed if its content type is JSON, otherwise as text."""
    timeout: Annotated[float, Field(gt=0)] | None = None
    """The timeout of a call in seconds, unless the tool's own option `timeout` is set."""
    read_timeout: Annotated[float, Field(gt=0)] = 20.0
    """How many seconds the server may send nothing. The tool's timeout limits the whole call."""
    max_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024
    """The largest size of a response, decompressed."""
    allowed_hosts: Annotated[frozenset[str], AfterValidator(_checked_hosts)] = frozenset()
    """Hosts of the internal network that the tool may reach, as `host` or `host:port`, with the
    name that the URL contains. Public addresses need no entry."""

    @model_validator(mode="after")
    def _is_consistent(self) -> RestConfig:
        _ = self.placeholders  # raises if a template is invalid
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise ValueError(f"a {self.method} request cannot have a body: use `query`")
        return self

    @property
    def is_repeatable(self) -> bool:
        """Whether the request has the same effect if it arrives twice."""
        return self.method in REPEATABLE_METHODS or self.idempotency_key

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The names of the arguments that the templates use."""
        return placeholders([self.path, dict(self.headers), dict(self.query), self.body])
