"""REST tools: each call is one HTTP request, built from the arguments by the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Unpack

import httpx2

from tracer.context import ToolContext
from tracer.errors import (
    AddressRefused,
    InvalidResult,
    RegistrationError,
    ToolError,
    ToolUnavailable,
)
from tracer.tools.definition.arguments import Arguments, JsonSchema
from tracer.tools.definition.hidden_parameters import without_absent
from tracer.tools.definition.tool import Tool, ToolOptions, ToolType
from tracer.tools.executors.rest.auth import Credential, credential_of
from tracer.tools.executors.rest.config import QUERY_METHODS, RestConfig
from tracer.tools.executors.rest.http_clients import http_of
from tracer.tools.executors.rest.request import RestRequest, redirected, rest_request
from tracer.tools.executors.rest.response import rest_failure, rest_result

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
