"""The request of a REST tool's call, and the requests that follow redirects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote, urlencode

import httpx2

from tracer.context import ToolContext
from tracer.errors import AddressRefused, ConfigurationError, InvalidArguments, ToolError
from tracer.tools.definition.arguments import Arguments, invalid_arguments
from tracer.tools.executors.rest.auth import Credential
from tracer.tools.executors.rest.config import QUERY_METHODS, RestConfig, checked_base_url
from tracer.tools.executors.rest.templates import ABSENT, as_text, filled, placeholders
from tracer.tools.executors.trace_headers import trace_headers

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
