"""HTTP for tools: clients that refuse internal addresses, secrets, and headers with the trace."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Protocol, runtime_checkable

import httpcore2
import httpx2
from pydantic import AfterValidator, SecretStr

from tracer.concurrency import capped_deadline, seconds_left
from tracer.context import ToolContext
from tracer.errors import AddressRefused, ConfigurationError, ToolError
from tracer.records import span_id
from tracer.redaction import SecretKeys

# --- Secrets in configurations are references; the value is read when it is used.

MAX_FILE_BYTES = 64 * 1024
"""The largest size of a secret's file. A reference to a larger one is a mistake."""

_SECRET_KEYS = SecretKeys(("app_key", "auth_key", "functions_key", "subscription_key"))
_CREDENTIALS = re.compile(r"(?:bearer|basic|token)\s+\S", re.IGNORECASE)


def is_literal_secret(name: str, value: object) -> bool:
    """Return whether a setting, such as a header, contains a secret itself instead of a reference.

    A secret is recognized by the setting's name, in any spelling (`X-Api-Key`, `apiKey`), or by a
    value such as `Bearer …`. A template such as `{key}` is not a secret.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return False
    if _CREDENTIALS.match(str(value)):
        return True
    return _SECRET_KEYS.rule_of(name) is not None and "{" not in str(value)


def checked_reference(reference: str) -> str:
    """Return a reference unchanged.

    Raises:
        ValueError: The text is not a reference.
    """
    kind, _, name = reference.partition(":")
    if kind not in ("env", "file") or not name.strip():
        # The message must not quote the value, which may be the secret itself.
        raise ValueError(
            "a secret must be a reference: 'env:' and a variable's name, or 'file:' and a file's "
            "path"
        )
    return reference


SecretReference = Annotated[str, AfterValidator(checked_reference)]
"""A reference to a secret: `env:NAME` or `file:PATH`. It may be shown and logged."""


def read_secret(reference: str, environment: Mapping[str, str] = os.environ) -> SecretStr:
    """Return the secret that a reference names. Trailing line breaks of a file are removed.

    Args:
        reference: A `SecretReference`.
        environment: The variables that `env:` refers to.

    Raises:
        ToolError: The secret is missing, empty or cannot be read. The message names the reference.
    """
    kind, _, name = reference.partition(":")
    try:
        value = environment[name] if kind == "env" else _text_of(Path(name))
    except (KeyError, OSError, ValueError):
        value = ""
    if not value:
        raise ToolError(
            f"The secret {reference!r} is missing. Set it before you use the tool."
        ) from None
    return SecretStr(value)


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        return ""
    return content.decode().rstrip("\r\n")


# --- W3C trace context: requests to other systems name the tool call that they belong to.


def trace_headers(context: ToolContext) -> dict[str, str]:
    """Return the headers `traceparent` and `tracestate` for the requests of a tool call.

    Return no headers outside of a call, and for a call that is not recorded. The trace id
    is the run's id, and the parent span id is derived from the call's id. `tracestate` contains the
    call's whole id, so that the receiver can find the record.
    """
    if context.tool_call_id is None or not context.is_recorded:
        return {}
    return {
        "traceparent": f"00-{context.root_plan_id.hex}-{span_id(context.tool_call_id)}-01",
        "tracestate": f"tracer={context.tool_call_id}",
    }


@contextmanager
def call_as_span(context: ToolContext) -> Iterator[None]:
    """Within the block, make a tool call the current span of OpenTelemetry.

    Does nothing if another span is current, if no tool call is in progress, or if the call is not
    recorded.

    If an OpenTelemetry SDK is installed, some libraries replace our trace headers by those of their
    own span. With this function, their span is a child of the call, in the run's trace.
    """
    from opentelemetry import trace  # where such a library is imported, this is too

    has_span = trace.get_current_span().get_span_context().is_valid
    if context.tool_call_id is None or not context.is_recorded or has_span:
        yield
        return
    of_call = trace.SpanContext(
        trace_id=context.root_plan_id.int,
        span_id=int(span_id(context.tool_call_id), 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        trace_state=trace.TraceState([("tracer", str(context.tool_call_id))]),
    )
    span = trace.NonRecordingSpan(of_call)
    with trace.use_span(span, record_exception=False, set_status_on_exception=False):
        yield


# --- The address guard: tools may reach public addresses, and the hosts of an allow-list.
#
# A name is resolved once, all its addresses are checked, and the connection is made to one of them:
# a second lookup could return another address (DNS rebinding). The guard is a network backend below
# the connection pool, so TLS and the `Host` header still use the name.

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host name, as text. Raises `OSError` if there are none."""

_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "168.63.129.16/32",  # Azure's metadata
        "192.0.0.0/24",  # protocol assignments, Oracle's metadata among them
        "192.88.99.0/24",  # relays from 6to4
    )
)
"""Networks that are not public, although some versions of `ipaddress` consider them public."""

_UNICAST_V6 = IPv6Network("2000::/3")
"""The range of all public IPv6 addresses."""
_SPECIAL_V6 = (IPv6Network("3fff::/20"),)  # documentation
_EMBEDDING_V4 = tuple(
    IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/96",  # NAT64 of the local network
    )
)
"""Networks whose addresses end in an IPv4 address."""
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The first half of an ISATAP interface identifier, whose second half is an IPv4 address."""


def is_public(address: str) -> bool:
    """Return whether an address is on the public internet.

    If an IPv6 address embeds an IPv4 address, the IPv4 address decides, because packets are
    forwarded to it.

    Args:
        address: An address as text. Other text is not public.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return _is_public_v4(parsed) if isinstance(parsed, IPv4Address) else _is_public_v6(parsed)


def _is_public_v4(address: IPv4Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not any(address in network for network in _SPECIAL_V4)
    )


def _is_public_v6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    last = IPv4Address(int(address) & 0xFFFF_FFFF)
    if any(address in network for network in _EMBEDDING_V4):
        return _is_public_v4(last)
    if address.sixtofour is not None:
        return _is_public_v4(address.sixtofour)
    if address.teredo is not None:
        return all(_is_public_v4(each) for each in address.teredo)
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP and not _is_public_v4(last):
        return False
    return (
        address in _UNICAST_V6
        and address.is_global
        and not any(address in network for network in _SPECIAL_V6)
    )


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host by the system's resolver.

    Raises:
        OSError: The host has no addresses.
    """
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in answers))


def allowed_host(entry: str) -> tuple[str, int | None]:
    """Return host and port of an allow-list entry. A port of None means any port.

    Raises:
        ConfigurationError: The entry is neither `host` nor `host:port`.
    """
    text = f"[{entry}]" if entry.count(":") > 1 and not entry.startswith("[") else entry
    try:
        url = httpx2.URL(f"any://{text}")
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if not url.host or set("/?#@*") & set(text):
        raise ConfigurationError(
            f"{entry!r} is not a valid entry of the allowed hosts. Write a host, or host:port."
        )
    return url.raw_host.decode(), url.port


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections to public addresses and to the hosts of an allow-list."""

    def __init__(self, allowed_hosts: Iterable[str] = (), resolve: Resolve = resolve) -> None:
        """Create a backend.

        Args:
            allowed_hosts: Hosts that may be reached at any address, as `host` or `host:port`, with
                the name that the URL contains.
            resolve: The resolver of names.

        Raises:
            ConfigurationError: An entry of `allowed_hosts` is invalid.
        """
        self._allowed = frozenset(allowed_host(entry) for entry in allowed_hosts)
        self._resolve = resolve
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of a host that accepts a connection.

        Raises:
            AddressRefused: One of the host's addresses is not public.
            httpcore2.ConnectError: The host has no address, or none accepts a connection.
            httpcore2.ConnectTimeout: No address accepted in time.
        """
        deadline = capped_deadline(None, timeout)
        addresses = await self._addresses(host, port, timeout)
        error: Exception = httpcore2.ConnectError("The host has no address.")
        for untried, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            remaining = seconds_left(deadline)
            share = None if remaining is None else remaining / untried
            try:
                return await self._network.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                error = failed
        raise error

    async def _addresses(self, host: str, port: int, timeout: float | None) -> list[str]:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout("The host name was not resolved in time.") from None
        except (OSError, UnicodeError):
            raise httpcore2.ConnectError("The host name cannot be resolved.") from None
        if self._allowed.isdisjoint({(host, None), (host, port)}) and not all(
            is_public(address) for address in addresses
        ):
            # The message has no address, because the model may be probing the internal network.
            raise AddressRefused(
                f"{host} is not a public address. A tool may reach such a host only if the tool's "
                "configuration lists the host in `allowed_hosts`. Continue without this host."
            )
        return addresses

    async def sleep(self, seconds: float) -> None:
        """Wait; the pool calls this between attempts."""
        await self._network.sleep(seconds)


# --- HTTP connections of tools. The address guard checks them. Proxies and cookies are not used.

MAX_CONNECTIONS = 100
"""How many connections to the hosts of one allow-list are open at once; other requests wait."""
IDLE_CONNECTIONS = 20
IDLE_SECONDS = 15.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the addresses that tools may reach, over pooled connections.

    The class uses httpcore2's public API, because httpx2's transport has no parameter for a network
    backend. Setting a private attribute of that transport would be unsafe: if a later version
    renamed the attribute, the guard would silently be disabled.
    """

    def __init__(self, backend: GuardedBackend, ssl_context: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
            retries=0,
            network_backend=backend,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return the response, with its body unread.

        Raises:
            AddressRefused: Tools may not reach the address.
            httpx2.TransportError: There is no response.
        """
        if request.url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(
                "Unsupported URL scheme: only http and https are allowed."
            )
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with _errors_of_httpx2():
            response = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
            request=request,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._response.stream
        assert isinstance(stream, AsyncIterable)
        with _errors_of_httpx2():
            async for part in stream:
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _errors_of_httpx2() -> Iterator[None]:
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.UnsupportedProtocol,
    ) as error:
        # httpcore2 and httpx2 have error classes of the same names.
        raise getattr(httpx2, type(error).__name__)(str(error)) from error


class HttpClients:
    """The HTTP connections of a run or a service, until it is closed.

    Tools with different allow-lists share no connections. Otherwise a tool could use a connection
    to a host that its allow-list lacks.
    """

    def __init__(
        self, *, resolve: Resolve = resolve, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Create the pools; connections are opened when they are needed.

        Args:
            resolve: The resolver of names.
            ssl_context: How servers are verified; by default, with the system's certificates.
        """
        self._resolve = resolve
        self._custom_ssl_context = ssl_context
        self._transports: dict[frozenset[str], GuardedTransport] = {}
        self._is_closed = False

    def transport(self, allowed_hosts: Iterable[str] = ()) -> GuardedTransport:
        """Return the transport for tools with this allow-list (see `GuardedBackend`).

        Raises:
            ConfigurationError: The connections are closed, or an entry of the list is invalid.
        """
        if self._is_closed:
            raise ConfigurationError(
                "The HTTP connections for tools are closed, so no request can be sent."
            )
        key = frozenset(allowed_hosts)
        if key not in self._transports:
            backend = GuardedBackend(key, self._resolve)
            self._transports[key] = GuardedTransport(backend, self._ssl_context)
        return self._transports[key]

    async def aclose(self) -> None:
        """Close all connections, and open no more."""
        self._is_closed = True
        while self._transports:
            await self._transports.popitem()[1].aclose()

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        # Created when first needed, because loading the certificates takes 20 ms.
        return self._custom_ssl_context or httpx2.create_ssl_context(trust_env=False)


@runtime_checkable
class HasHttp(Protocol):
    """The part of a run that REST tools need."""

    @property
    def http(self) -> HttpClients:
        """The connections that the run's tools share."""
        ...


def http_of(context: ToolContext) -> HttpClients:
    """Return the connections of the run that a call belongs to.

    Raises:
        ConfigurationError: The call belongs to no run, or to one without HTTP connections.
    """
    if not isinstance(context.run, HasHttp):
        raise ConfigurationError(
            "This tool needs HTTP connections, so only a run or a tool service can call it."
        )
    return context.run.http
