"""REST tools: an HTTP endpoint as a tool."""

from __future__ import annotations

import codecs
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal, Unpack
from urllib.parse import quote, unquote, urlencode

import httpx2
from anyio import to_thread
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

from tracer.context import Identity, ToolContext, token_of
from tracer.errors import (
    AddressRefused,
    ConfigurationError,
    InvalidArguments,
    InvalidResult,
    RegistrationError,
    ToolError,
    ToolUnavailable,
)
from tracer.tools.definition import Tool, ToolOptions, ToolType
from tracer.tools.http_clients import (
    SecretReference,
    allowed_host,
    checked_reference,
    http_of,
    is_literal_secret,
    read_secret,
    trace_headers,
)
from tracer.tools.parameters import Arguments, JsonSchema, invalid_arguments, without_absent

# --- Templates: text that contains `{argument}`, and structures of such text.

ABSENT = object()
"""The value of a template that is a single placeholder, if the argument is absent."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}!:]+)\}")
"""Matches a placeholder, whose name is a group, or a literal brace."""


def placeholders(template: object) -> frozenset[str]:
    """Return the names of the arguments that a template, or a structure of templates, uses.

    Raises:
        ValueError: A brace is unmatched, or a placeholder is more than a name.
    """
    if isinstance(template, str):
        if set("{}") & set(_PLACEHOLDER.sub("", template)):
            raise ValueError(
                f"{template!r}: write {{argument}} for an argument, and {{{{ for a literal brace"
            )
        return frozenset(filter(None, _PLACEHOLDER.findall(template)))
    if isinstance(template, Mapping):
        template = list(template.values())
    return frozenset().union(*map(placeholders, template if isinstance(template, list) else ()))


def filled(template: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced by arguments.

    If a text is a single placeholder, the result is the argument itself, of any type, or `ABSENT`
    if the argument is absent. An absent argument is omitted from mappings and lists. Within other
    text it becomes empty text.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole and whole[1]:
            return arguments.get(whole[1], ABSENT)
        return _PLACEHOLDER.sub(
            lambda each: as_text(arguments.get(each[1])) if each[1] else each[0][0], template
        )
    if isinstance(template, Mapping):
        items = {name: filled(each, arguments) for name, each in template.items()}
        return {name: each for name, each in items.items() if each is not ABSENT}
    if isinstance(template, list):
        return [each for each in (filled(e, arguments) for e in template) if each is not ABSENT]
    return template


def as_text(value: Any) -> str:
    """Return an argument as text: strings unchanged, empty text for null, otherwise JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


# --- The configuration of a REST tool: the request, and the part of the response that it returns.

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


# --- Authentication of a REST tool, and removal of its secret from responses.

HIDDEN = "[hidden]"


@dataclass(frozen=True)
class Credential:
    """The headers and query parameters that authenticate a tool, for one call."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    forms: tuple[str, ...] = field(default=(), repr=False)
    """The encodings in which a response may contain the secret, the longest first."""

    def hide(self, value: Any) -> Any:
        """Return a JSON value or a text without the secret. Some servers echo what they receive.

        Raises:
            RecursionError: The value is nested too deeply.
        """
        if not self.forms:
            return value
        if isinstance(value, str):
            for form in self.forms:
                value = value.replace(form, HIDDEN)
        elif isinstance(value, list):
            return [self.hide(each) for each in value]
        elif isinstance(value, dict):
            return {self.hide(name): self.hide(each) for name, each in value.items()}
        return value


async def credential_of(auth: Auth | None, caller: Identity | None) -> Credential:
    """Read the secret of a tool, and return the headers or parameters to send.

    Args:
        auth: How the tool authenticates; None: without authentication.
        caller: The call's caller, whose token `caller:token` refers to.

    Raises:
        MissingIdentity: The secret is the caller's token, and there is no caller.
        ToolError: The secret is missing, or contains characters that are invalid in a header. The
            message names the reference.
    """
    if auth is None:
        return Credential()
    source = auth.secret
    if source == CALLER_TOKEN:
        secret = token_of(caller)
    else:
        # In a thread, because the file may be on a disk that does not respond.
        read = source if callable(source) else partial(read_secret, source)
        value = await to_thread.run_sync(read, abandon_on_cancel=True)
        secret = value.get_secret_value()
    sent = secret
    if isinstance(auth, BasicAuth):
        sent = b64encode(f"{auth.username}:{secret}".encode()).decode()
    text = json.dumps(secret)[1:-1]
    forms = {secret, sent, text, text.replace("/", "\\/"), quote(secret, safe=""), quote(secret)}
    forms.add(json.dumps(secret, ensure_ascii=False)[1:-1])
    longest_first = tuple(sorted(forms, key=len, reverse=True))
    if isinstance(auth, QueryAuth):
        return Credential(query={auth.name: secret}, forms=longest_first)
    scheme = {"basic": "Basic ", "bearer": "Bearer ", "header": ""}[auth.type]
    name, header = getattr(auth, "name", "Authorization"), scheme + sent
    if not (header.isascii() and header.isprintable() and header == header.strip()):
        raise ToolError(
            f"The secret {auth.secret!r} contains characters that are invalid in a header. "
            "The tool cannot be used until the secret is corrected."
        )
    return Credential({name: header}, forms=longest_first)


# --- The request of a REST tool's call, and the requests that follow redirects.

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CROSS_ORIGIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "content-type", "idempotency-key", "user-agent"}
)
"""The headers that are sent to another origin after a redirect. Credentials, headers that may be
credentials, and trace headers are not."""


@dataclass(frozen=True)
class RestRequest:
    """A request, ready to be sent."""

    method: str
    url: httpx2.URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    """Headers by lower-case name."""
    content: bytes | None = field(default=None, repr=False)


def rest_request(
    config: RestConfig,
    arguments: Arguments,
    context: ToolContext,
    credential: Credential,
) -> RestRequest:
    """Return the request for a call.

    Args:
        config: The tool's request.
        arguments: The call's arguments, checked against the tool's schema.
        context: The call's context, for the trace headers.
        credential: The headers and query parameters that authenticate the tool.

    Raises:
        InvalidArguments: An argument cannot be used in the URL or in a header.
        ConfigurationError: The base URL that its function returned is invalid.
    """
    rest = {name: each for name, each in arguments.items() if name not in config.placeholders}
    goes_into_query = config.method in QUERY_METHODS
    headers = {
        "accept": "application/json, text/*;q=0.9, */*;q=0.1",
        "accept-encoding": "gzip, deflate",
        "user-agent": "tracer",
        **_headers(config.headers, arguments),
        **trace_headers(context),
        **{name.lower(): value for name, value in credential.headers.items()},
    }
    if config.idempotency_key and context.tool_call_id is not None:
        headers["idempotency-key"] = str(context.tool_call_id)
    content = None
    if config.body is not None:
        content = _json(filled(config.body, arguments))
    elif not goes_into_query:
        content = _json(rest)
    if content is not None:
        headers.setdefault("content-type", "application/json")
    query = _query(config, arguments, rest if goes_into_query else {})
    # An argument from the model must not replace or repeat the credential.
    query = [each for each in query if each[0] not in credential.query]
    url = _url(config, arguments, [*query, *credential.query.items()])
    return RestRequest(config.method, url, headers, content)


def redirected(request: RestRequest, response: httpx2.Response) -> RestRequest | None:
    """Return the request that follows a redirect, as browsers do; None if there is no redirect.

    Raises:
        AddressRefused: The target is not an `http` or `https` URL.
        ToolError: The target is not a valid URL.
    """
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or not location:
        return None
    try:
        url = request.url.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise ToolError("The API redirects to an invalid URL.") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise AddressRefused("The API redirects to a URL that is neither http nor https.")
    if url.origin != request.url.origin:
        headers = {
            name: each for name, each in request.headers.items() if name in _CROSS_ORIGIN_HEADERS
        }
        request = replace(request, headers=headers)
    method = request.method
    if (response.status_code == 303 and method != "HEAD") or (
        response.status_code in (301, 302) and method == "POST"
    ):
        of_body = ("content-type", "idempotency-key")
        headers = {name: each for name, each in request.headers.items() if name not in of_body}
        request = replace(request, method="GET", headers=headers, content=None)
    return replace(request, url=url)


def _url(config: RestConfig, arguments: Arguments, pairs: list[tuple[str, str]]) -> httpx2.URL:
    try:
        base_url = config.base_url
        base = checked_base_url(base_url if isinstance(base_url, str) else base_url())
    except ValueError as error:
        raise ConfigurationError(f"The tool's base URL is invalid: {error}.") from None
    target = base.raw_path.decode()
    if config.path:
        target = f"{target.rstrip('/')}/{_path(config.path, arguments).removeprefix('/')}"
    try:
        query = urlencode(pairs, quote_via=quote)
        return base.copy_with(raw_path=(f"{target}?{query}" if query else target).encode())
    except UnicodeError:
        raise InvalidArguments(
            "An argument contains characters that cannot be encoded in a URL."
        ) from None
    except httpx2.InvalidURL:
        raise InvalidArguments("The arguments are too long for a URL.") from None


def _path(template: str, arguments: Arguments) -> str:
    values = {name: _path_value(name, arguments.get(name)) for name in placeholders(template)}
    return quote(as_text(filled(template, values)), safe="%/:@!$&'()*+,;=")


def _path_value(name: str, value: Any) -> str:
    """Return an argument as text for a path: not empty, and without separators and dot segments."""
    if isinstance(value, (list, dict)) or value is None or value == "":
        raise invalid_arguments(
            [([name], "is part of the URL's path, so it must be a non-empty string or a number")]
        )
    text = as_text(value)
    # The decoded text too: some servers and proxies decode before they look for dot segments.
    for each in (text, unquote(text)):
        if {".", ".."} & set(re.split(r"[/\\]", each)):
            raise invalid_arguments([([name], "must not contain a path segment of only dots")])
    try:
        return quote(text, safe="")
    except UnicodeError:
        raise invalid_arguments(
            [([name], "contains characters that cannot be encoded in a URL")]
        ) from None


def _query(config: RestConfig, arguments: Arguments, rest: Arguments) -> list[tuple[str, str]]:
    pairs = []
    for name, value in [*_present(config.query, arguments), *rest.items()]:
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                pairs.append((name, as_text(each)))
    return pairs


def _headers(templates: Mapping[str, str], arguments: Arguments) -> dict[str, str]:
    headers = {}
    for name, value in _present(templates, arguments):
        text = as_text(value).strip()
        if not (text.isascii() and text.isprintable()):
            raise InvalidArguments(
                f"An argument contains characters that are invalid in the header {name}."
            )
        headers[name.lower()] = text
    return headers


def _present(templates: Mapping[str, Any], arguments: Arguments) -> list[tuple[str, Any]]:
    """Fill the templates whose arguments are all present, and return them. Omit the others."""
    return [
        (name, value)
        for name, template in templates.items()
        if placeholders(template) <= arguments.keys()
        and (value := filled(template, arguments)) is not ABSENT
    ]


def _json(value: Any) -> bytes:
    return json.dumps(None if value is ABSENT else value).encode()


# --- The result of a REST tool, or its error, from an HTTP response.

MAX_RETRY_AFTER = 60.0
"""The longest wait in seconds that a server's `Retry-After` may request."""

EXCERPT_CHARACTERS = 500
"""How much of an error response the model is shown."""

CHARSETS = frozenset({
    "ascii", "big5", "big5hkscs", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255",
    "cp1256", "cp1257", "cp1258", "cp866", "cp874", "cp932", "cp949", "euc_jis_2004", "euc_jp",
    "euc_kr", "gb18030", "gb2312", "gbk", "iso8859-1", "iso8859-2", "iso8859-3", "iso8859-4",
    "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-10", "iso8859-13", "iso8859-14",
    "iso8859-15", "iso8859-16", "iso2022_jp", "koi8-r", "koi8-u", "shift_jis", "utf-8", "utf-16",
    "utf-16-be", "utf-16-le",
})  # fmt: skip
"""Python's names of the supported charsets of responses, from the Encoding Standard (whatwg.org).
Python's other codecs are not supported, because some take minutes to decode, such as punycode."""

_EXCERPT_BYTES = 16 * 1024
_TRANSIENT_STATUS = frozenset({429, 502, 503, 504})


async def rest_result(config: RestConfig, response: httpx2.Response, credential: Credential) -> Any:
    """Read a successful response and return the tool's result.

    The result of a response without a body is its status: `{"status": 204}`.

    Raises:
        InvalidResult: The response is too large, or lacks the configured result.
        httpx2.TransportError: The connection was lost.
        httpx2.DecodingError: The response cannot be decompressed.
    """
    body = await _body(response, config.max_bytes)
    if len(body) > config.max_bytes:
        raise InvalidResult(
            f"The API's response is larger than {config.max_bytes} bytes. Request less."
        )
    if config.response is None and not body:
        return {"status": response.status_code}
    if config.response is None and not _is_json(response):
        return credential.hide(_text(body, response))
    try:
        content = credential.hide(json.loads(body))
    except (ValueError, RecursionError):
        raise InvalidResult("The API's response is not valid JSON.") from None
    return content if config.response is None else _value_at(content, config.response)


async def rest_failure(response: httpx2.Response, credential: Credential) -> ToolError:
    """Return the error for an unsuccessful response."""
    status = response.status_code
    excerpt = b""
    with suppress(httpx2.TransportError, httpx2.DecodingError):
        excerpt = await _body(response, _EXCERPT_BYTES)
    text = _one_line(excerpt.decode(_charset(response), "replace"), credential)
    message = f"The API answered {status} {httpx2.codes.get_reason_phrase(status)}".rstrip()
    message = f"{message}: {text}" if text else f"{message}."
    is_transient = status in _TRANSIENT_STATUS
    error = ToolUnavailable(message, retry_after(response)) if is_transient else ToolError(message)
    error.max_characters = EXCERPT_CHARACTERS
    return error


def retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of a response's `Retry-After`, at most 60; None for a date."""
    text = response.headers.get("retry-after", "").strip()
    return min(float(text), MAX_RETRY_AFTER) if text.isascii() and text.isdigit() else None


async def _body(response: httpx2.Response, limit: int) -> bytes:
    """Read and decompress a body. Stop when it is longer than `limit` bytes."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def _is_json(response: httpx2.Response) -> bool:
    kind = _media_type(response)
    return kind == "application/json" or kind.endswith("+json")


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _charset(response: httpx2.Response) -> str:
    try:
        name = codecs.lookup(response.charset_encoding or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name in CHARSETS else "utf-8"


def _text(body: bytes, response: httpx2.Response) -> str:
    kind = _media_type(response)
    try:
        return body.decode(_charset(response), "replace" if kind.startswith("text/") else "strict")
    except UnicodeError:
        raise InvalidResult(
            f"The API's response is not text, but {kind or 'of an unknown content type'}."
        ) from None


def _one_line(text: str, credential: Credential) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return str(credential.hide(" ".join(printable.split())))


def _value_at(content: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer.

    Raises:
        InvalidResult: There is no value at this pointer.
    """
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(content, dict) and key in content:
            content = content[key]
        elif isinstance(content, list) and key.isdecimal() and int(key) < len(content):
            content = content[int(key)]
        else:
            raise InvalidResult(f"The API's response has no value at {pointer!r}.")
    return content


# --- REST tools: each call is one HTTP request, built from the arguments by the configuration.

DEFAULT_TIMEOUT = 30.0
MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
"""How many seconds it may take to open a connection, or to get one from the pool."""

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def rest_tool(
    *,
    name: str,
    description: str,
    parameters: JsonSchema,
    config: RestConfig,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Define a tool that sends an HTTP request.

    Args:
        name: The name for the model.
        description: The description for the model.
        parameters: The JSON Schema of its arguments, an object.
        config: The request, and the result.
        options: See `Tool`. By default a call times out after 30 seconds. Templates of `config`
            may use hidden parameters. A hidden parameter without a value counts as absent.

    Raises:
        RegistrationError: A template uses an argument that `parameters` lacks; the request does not
            use one of the arguments; or `max_attempts` allows retries of a request that is not
            idempotent.
    """
    if options.get("max_attempts", 1) > 1 and not config.is_repeatable:
        raise RegistrationError(
            f"The tool {name!r} sends a {config.method}, which must not be sent twice. Set "
            "`max_attempts` to 1, or set `idempotency_key` if the API supports it."
        )
    hidden = options.get("hidden", {})
    _check_arguments(name, parameters, hidden, config)

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        arguments = without_absent(arguments, hidden)
        transport = http_of(context).transport(config.allowed_hosts)
        return await call_rest(config, arguments, context, transport)

    options.setdefault("timeout", config.timeout or DEFAULT_TIMEOUT)
    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        run=run,
        tool_type=ToolType.REST,
        **options,
    )


async def call_rest(
    config: RestConfig,
    arguments: Arguments,
    context: ToolContext,
    transport: httpx2.AsyncBaseTransport,
) -> Any:
    """Send a call's request and return the tool's result.

    This coroutine has no deadline. The caller must cancel it when the call's deadline passes.

    Args:
        config: The request, and the result.
        arguments: The call's arguments, checked against the tool's schema.
        context: The call's context.
        transport: Sends the request. An httpx2 client is not used, because clients store cookies
            and log URLs.

    Raises:
        InvalidArguments: An argument cannot be used in the URL or in a header.
        AddressRefused: Tools may not reach the address, or the target of a redirect.
        ToolUnavailable: There is no response, or the response asks to retry later.
        InvalidResult: The response is too large, or lacks the configured result.
        ToolError: The response is an error; or there is no response, and the request must not be
            sent twice.
    """
    credential = await credential_of(config.auth, context.identity)
    request = rest_request(config, arguments, context, credential)
    try:
        return await _exchange(config, request, credential, transport)
    except ToolError as error:
        # The message may contain a host from a redirect, in which a malicious server may have put
        # the secret.
        error.args = (credential.hide(str(error)),)
        raise


async def _exchange(
    config: RestConfig,
    request: RestRequest,
    credential: Credential,
    transport: httpx2.AsyncBaseTransport,
) -> Any:
    timeout = httpx2.Timeout(config.read_timeout, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
    try:
        for _ in range(1 + MAX_REDIRECTS):
            response = await transport.handle_async_request(
                httpx2.Request(
                    request.method,
                    request.url,
                    headers=dict(request.headers),
                    content=request.content,
                    extensions={"timeout": timeout.as_dict()},
                )
            )
            async with aclosing(response):
                next_request = redirected(request, response)
                if next_request is None:
                    if response.is_success:
                        return await rest_result(config, response, credential)
                    raise await rest_failure(response, credential)
                request = next_request
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        # Without the cause, because its message may contain headers.
        raise _error_for_model(error, config, request) from None
    raise ToolError(f"The API redirects more than {MAX_REDIRECTS} times.")


def _error_for_model(
    error: httpx2.RequestError, config: RestConfig, request: RestRequest
) -> ToolError:
    """Return the error that the model receives if a request has no complete response."""
    host = request.url.host
    if isinstance(error, httpx2.DecodingError):
        return InvalidResult("The API's response cannot be decompressed.")
    if isinstance(error, httpx2.UnsupportedProtocol):
        return AddressRefused()
    if isinstance(error, httpx2.LocalProtocolError):
        return ToolError("The request violates the rules of HTTP, and was not sent.")
    if isinstance(error, _NOT_SENT):
        return ToolUnavailable(f"{host} cannot be reached. Try again later.")
    if isinstance(error, httpx2.TimeoutException):
        problem = f"{host} sent nothing for {config.read_timeout:g} s"
    else:
        problem = f"The connection to {host} was lost"
    if config.is_repeatable:
        return ToolUnavailable(f"{problem}. Try again later.")
    return ToolError(
        f"{problem}. The request may have been carried out. Check that before you send it again."
    )


def _check_arguments(
    name: str, parameters: JsonSchema, hidden: Mapping[str, Any], config: RestConfig
) -> None:
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return
    properties = {**properties, **dict.fromkeys(hidden)}
    if unknown := sorted(config.placeholders - properties.keys()):
        raise RegistrationError(
            f"The tool {name!r} uses arguments that it does not declare: {', '.join(unknown)}. "
            "Add them to its parameters."
        )
    unused = sorted(properties.keys() - config.placeholders)
    if unused and config.body is not None and config.method not in QUERY_METHODS:
        raise RegistrationError(
            f"The tool {name!r} declares arguments that its request uses nowhere: "
            f"{', '.join(unused)}. Use them in the request, or remove them."
        )
