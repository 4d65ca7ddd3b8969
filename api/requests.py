"""Requests: limits on their number and size, their bodies, parameters and disconnections."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from fastapi import Depends, Path, Query, Request
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tracer.errors import BadRequest, ConfigurationError, TooBusy, TooLarge, UnknownFormat
from tracer.logs import bind_request_ids
from tracer.records.events import Timestamp
from tracer.records.pages import TimeRange
from tracer.text import storable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# --- Limits on the number of recording requests in progress, and the order of their large bodies.
#
# The limits are not a middleware, because they apply only to recording requests, and for the time
# that a request's body is read, decoded and stored.

MAX_REQUESTS = 512
"""The number of requests that may be in progress together."""

MAX_PROJECT_REQUESTS = 128
"""The number for each project, so that a project cannot stop other projects from recording."""

PATIENCE_SECONDS = 5.0
"""The longest wait for the first or the next part of a body."""

SLOWEST_BYTES = 16 * 2**10
"""The lowest accepted average rate of a body, in bytes per second. It applies from
`PATIENCE_SECONDS` after the start of the body."""

LARGE_BYTES = 2**20
"""The size from which bodies are decoded one at a time."""


class Intake:
    """The recording requests in progress, limited for each project and for the server.

    If no slot is free, a request is refused and not queued.
    """

    def __init__(
        self,
        max_requests: int = MAX_REQUESTS,
        max_project_requests: int = MAX_PROJECT_REQUESTS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._server = asyncio.Semaphore(max_requests)
        self._max_project_requests = max_project_requests
        self._projects = WeakValueDictionary[int, asyncio.Semaphore]()
        self._patience_seconds = patience_seconds
        self._turns = asyncio.Lock()

    @asynccontextmanager
    async def slot(self, project_id: int) -> AsyncIterator[None]:
        """Count a request of a project as in progress inside an `async with` block.

        Raises:
            TooBusy: The project or the server has too many requests in progress.
        """
        project = self._projects.get(project_id)
        if project is None:
            project = asyncio.Semaphore(self._max_project_requests)
            self._projects[project_id] = project
        for owner, semaphore in (("project", project), ("server", self._server)):
            if semaphore.locked():
                raise TooBusy(
                    f"The {owner} has reached its limit of recording requests in progress. "
                    "Send the request again later."
                )
        async with project, self._server:
            yield

    def patience(self, received: int, waited: float) -> float:
        """Return how many seconds to wait for the next part of a body.

        The time is limited, because a client whose machine has crashed never closes its connection.
        If the body arrives at less than `SLOWEST_BYTES` per second, the time gets shorter.

        Args:
            received: How many bytes of the body have arrived.
            waited: How many seconds the server has waited for these bytes.
        """
        ahead = received / SLOWEST_BYTES - waited
        return self._patience_seconds + min(0.0, ahead)

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """If a body is large, wait until no other large body is being decoded.

        Because of Python's global interpreter lock, decoding several large bodies at once would not
        be faster, but would need more memory.

        Args:
            size: The size of the body in bytes.
        """
        if size < LARGE_BYTES:
            yield
            return
        async with self._turns:
            yield


# --- Read request bodies as streams, decompress them, and limit their size.

MAX_BYTES = 32 * 2**20
"""The largest accepted body in bytes, after decompression."""

_PART_BYTES = 64 * 2**10
"""How many bytes are decompressed at once. The number is limited, because a body may expand a
thousandfold."""


class _Unpacker(Protocol):
    """A decompressor of `compression.zstd`, or an object with the same methods."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """A decompressor of zlib that keeps the input that it has not decompressed yet."""

    def __init__(self, window: int) -> None:
        self._unpacker = zlib.decompressobj(window)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._unpacker.decompress(self._unpacker.unconsumed_tail + data, max_length)
        # zlib may hold more output without input.
        self.needs_input = len(piece) < max_length
        return piece


_ZSTD_WINDOW_LOG = 23
"""The largest window of zstd bodies, 8 MB: the maximum of the content encoding (RFC 9659)."""

_UNPACKERS: Mapping[str, Callable[[], _Unpacker] | None] = {
    "": None,
    "identity": None,
    "gzip": partial(_Zlib, 16 + zlib.MAX_WBITS),
    "deflate": partial(_Zlib, zlib.MAX_WBITS),
    "zstd": partial(
        zstd.ZstdDecompressor,
        options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG},
    ),
}
"""Creates the decompressor of each content encoding; None: not compressed."""


def media_type(request: Request) -> str:
    """Return the request's media type in lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def admitted_body(
    request: Request, intake: Intake, max_bytes: int = MAX_BYTES
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the decompressed body as a stream of parts.

    Inside the `async with` block, the request counts as in progress.

    Args:
        request: The request, with its caller.
        intake: Limits the recording requests in progress.
        max_bytes: The largest accepted size. It applies to the compressed body, too.

    Raises:
        UnknownFormat: The `Content-Encoding` is not supported.
        TooBusy: The limits of `intake` are reached, or the body arrives too slowly.
        TooLarge: The body is larger than `max_bytes`.
        BadRequest: The body is damaged or ends early.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _UNPACKERS:
        raise UnknownFormat(
            "This Content-Encoding is not supported. Use gzip, zstd, deflate or none."
        )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise _too_large(max_bytes)
    async with intake.slot(request.state.caller.project_id):
        received = _received(request, intake, max_bytes)
        unpacker = _UNPACKERS[encoding]
        yield (received if unpacker is None else _limited(_unpacked(received, unpacker), max_bytes))


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"A body may have at most {max_bytes} bytes after decompression. Split it into several "
        "requests."
    )


async def _limited(parts: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    size = 0
    async for part in parts:
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield part


async def _received(request: Request, intake: Intake, max_bytes: int) -> AsyncIterator[bytes]:
    size, waited, is_more = 0, 0.0, True
    try:
        while is_more:
            since = time.monotonic()
            # Not `request.stream()`, which waits once more at the end of each request.
            async with asyncio.timeout(intake.patience(size, waited)):
                message = await request.receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("The body ended early. Send the request again.")
            waited += time.monotonic() - since
            part, is_more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > max_bytes:
                raise _too_large(max_bytes)
            yield part
    except TimeoutError as error:
        raise TooBusy("The body arrived too slowly. Send the request again later.") from error


async def _unpacked(
    parts: AsyncIterator[bytes], new_unpacker: Callable[[], _Unpacker]
) -> AsyncIterator[bytes]:
    unpacker = new_unpacker()
    try:
        async for part in parts:
            while part:
                if unpacker.eof:  # the next of several archives in a row
                    unpacker = new_unpacker()
                yield unpacker.decompress(part, _PART_BYTES)
                while not unpacker.eof and not unpacker.needs_input:
                    yield unpacker.decompress(b"", _PART_BYTES)
                part = unpacker.unused_data
    except (zlib.error, zstd.ZstdError) as error:
        raise BadRequest("The body does not match its Content-Encoding.") from error
    if not unpacker.eof:
        raise BadRequest("The compressed body ends early. Send the request again.")


# --- The parameters that routes have in common.

RootPlanId = Annotated[UUID, Path(alias="rootPlanId", description="The run's root plan.")]
PlanId = Annotated[UUID, Path(alias="planId")]
ThinkActId = Annotated[UUID, Path(alias="thinkActId")]
ToolCallId = Annotated[UUID, Path(alias="toolCallId")]


async def refuse_unknown_parameters(request: Request) -> None:
    """Reject unknown query parameters, because a misspelt parameter must not be ignored.

    Raises:
        BadRequest: The request has a query parameter that its route does not have.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = _query_parameters(route.dependant)
    unknown = sorted(request.query_params.keys() - known)
    if unknown:
        offered = f"Use one of {', '.join(sorted(known))}." if known else "It takes no parameters."
        raise BadRequest(f"This path has no query parameter {storable(unknown[0])!r}. {offered}")


def _query_parameters(dependant: Dependant) -> set[str]:
    """Return the names of a route's query parameters, including those of its dependencies."""
    own = {name for field in dependant.query_params for name in _names(field)}
    return own.union(*map(_query_parameters, dependant.dependencies))


def _names(field: ModelField) -> Iterable[str]:
    """Return the names of a parameter: of a model, those of its fields."""
    model = field.field_info.annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return (each.alias or name for name, each in model.model_fields.items())
    return [field.alias]


async def name_lineage(request: Request) -> None:
    """Add the record ids in a request's path to every log line of the request."""
    for name, value in request.path_params.items():
        if name in _IDS:
            with suppress(ValueError):  # FastAPI rejects other values; they must not be logged
                bind_request_ids(**{_IDS[name]: UUID(value)})


_IDS = {
    "rootPlanId": "root_plan_id",
    "planId": "plan_id",
    "thinkActId": "think_act_id",
    "toolCallId": "tool_call_id",
    "recorderId": "recorder_id",
}


StoredText = Annotated[str, AfterValidator(storable)]
"""A text to search for. Characters that cannot be stored are escaped, as in stored texts."""

PageSize = Annotated[int, Query(ge=1, le=500, description="The largest number of items in a page.")]
CursorText = Annotated[str | None, Query(description="The `nextCursor` of the previous page.")]
_Since = Annotated[
    Timestamp | None,
    Query(
        alias="from",
        description="Only items that started at this time or later (RFC 3339). If an item has no "
        "start, the time of its recording counts.",
    ),
]
_Until = Annotated[
    Timestamp | None,
    Query(
        alias="to",
        description="Only items that started before this time (RFC 3339). If an item has no start, "
        "the time of its recording counts.",
    ),
]


async def _range(since: _Since = None, until: _Until = None) -> TimeRange:
    if since is not None and until is not None and since > until:
        raise BadRequest("'from' is later than 'to', so the range is empty. Swap the two times.")
    return TimeRange(since, until)


Period = Annotated[TimeRange, Depends(_range)]
"""The time range of a list or of statistics."""


# --- Cancel the work for a request if the client disconnects.

T = TypeVar("T")


async def until_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. If the client disconnects first, cancel `work`.

    Args:
        request: The request, such as a GET. No other code may read its body.
        work: The coroutine that does the work.

    Raises:
        BadRequest: The client disconnected. This error appears only in the log.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BadRequest("The client disconnected before the response.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- Take the client's address and scheme from the headers of trusted reverse proxies.
#
# The headers `X-Forwarded-For` and `X-Forwarded-Proto` count only if a peer in
# `FORWARDED_ALLOW_IPS` sent them. uvicorn's own middleware is not used, because it trusts every
# program on this machine, and accepts any text as an address.

VARIABLE = "FORWARDED_ALLOW_IPS"

_PEER = "tracer.peer"


def behind_proxies(app: ASGIApp, allowed: str) -> ASGIApp:
    """Return a wrapper of `app` that sets each client's address to the one that a proxy reports.

    If a proxy reports something other than an IP address, the proxy's own address is used.

    Args:
        app: The application.
        allowed: The value of `FORWARDED_ALLOW_IPS`: addresses and networks, separated by commas,
            or `*` for any peer. Empty: the headers are ignored.

    Raises:
        ConfigurationError: An entry is neither an address nor a network.
    """
    proxies = [each.strip() for each in allowed.split(",") if each.strip()]
    if not proxies:
        return app
    if proxies != ["*"]:
        for proxy in proxies:
            _check(proxy)

    async def with_valid_client(scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.pop(_PEER, None)
        client = scope.get("client")
        if client is not None and client != peer:
            address = _address(client[0])
            scope["client"] = peer if address is None else (address, client[1])
        await app(scope, receive, send)

    # uvicorn and Starlette declare the types of ASGI differently.
    inner: Any = with_valid_client
    forwarded: Any = ProxyHeadersMiddleware(inner, trusted_hosts=proxies)

    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[_PEER] = scope.get("client")
        await forwarded(scope, receive, send)

    return with_peer


def _check(proxy: str) -> None:
    try:
        ipaddress.ip_network(proxy)
    except ValueError as error:
        raise ConfigurationError(
            f"{VARIABLE} has the entry {proxy!r}, which is neither an IP address nor a network. "
            "Write addresses and networks separated by commas, such as `127.0.0.1, 10.0.0.0/8`, "
            "or `*` alone for any peer."
        ) from error


def _address(text: str) -> str | None:
    """Return the IP address in `text` in canonical form; None if `text` is not an IP address."""
    if "%" in text:  # the zone of an IPv6 address may be any text
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
