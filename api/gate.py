"""The gate: every request passes it before anything of it is read.

It asks by which name the server was called, who asks and from which site, and how much of their
share is left; what it lets in carries its `Caller`. What is open to all is listed here, so that
a new path is closed by itself. What a caller may do is said at the routes (`api.parts`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import error_response
from api.shares import Shares
from api.viewer import is_of_the_viewer
from tracer.access import Caller
from tracer.errors import NotAllowed, NotIdentified, TooLarge, TracerError, UnknownHost
from tracer.storage.callers import EVERYBODY, Callers

SIGN_IN = "/api/sign-in"
COOKIE = "tracer_sign_in"

OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""What anybody may ask besides the viewer's files, none of which has any data in it."""

BOUNDED_BY_THEMSELVES = frozenset({"/api/events", "/v1/traces"})
"""What takes large bodies, and counts them as it unpacks them."""

MAX_BYTES = 4 * 2**20
"""How large any other body may be."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""What a response has unless it says otherwise: the CORS headers are missing on purpose."""

_SENT_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())


@dataclass(frozen=True)
class Access:
    """Who is let in, and how."""

    callers: Callers | None = None
    """Finds out who asks; None lets everybody do everything, in a process of a test."""
    hosts: frozenset[str] | None = None
    """The names that the server may be called by besides those of this machine; None: any, where
    keys are needed."""
    shares: Shares | None = None
    """How much each key may ask; None: as much as it likes."""


@dataclass(frozen=True)
class _Visitor:
    caller: Caller
    has_key: bool = False
    has_cookie: bool = False


class Gate:
    """Lets requests in, or answers them."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        send = _with_headers(send)
        try:
            count = await self._let_in(request)
            receive = _counting(receive, count, _max_bytes(request))
        except TracerError as error:
            response = error_response(scope, error)
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _let_in(self, request: Request) -> Callable[[int], None]:
        """Give a request its caller, and return what takes note of the bytes that it brings."""
        callers = self._access.callers
        if callers is None:
            request.state.caller = EVERYBODY
            request.state.check_caller = nothing_to_check
            return lambda _: None
        path = request.scope["path"]  # what the routing goes by; `url` costs as much as the rest
        if path in OPEN or is_of_the_viewer(path):
            self._check_host(request, are_keys_needed=True)
            return lambda _: None
        are_keys_needed = await callers.are_keys_needed()
        self._check_host(request, are_keys_needed)
        if path == SIGN_IN and request.method == "POST":
            _check_site(request, must_tell=False)
            return self._share(("address", request.client and request.client.host))
        visitor = await _visitor(request, callers, are_keys_needed)
        if not visitor.has_key:
            _check_site(request, must_tell=visitor.has_cookie)
        request.state.caller = visitor.caller
        request.state.check_caller = partial(_check_caller, request, callers)
        return self._share(visitor.caller.key_id)

    def _share(self, whose: object) -> Callable[[int], None]:
        shares = self._access.shares
        return (lambda _: None) if shares is None or whose is None else shares.admit(whose)

    def _check_host(self, request: Request, are_keys_needed: bool) -> None:
        """Refuse a name that is not the server's.

        Where no key is needed, the name tells our own pages from one that had its own name changed
        to this machine's address. A key or a cookie goes to nobody but who got it.

        Raises:
            UnknownHost: It is not.
        """
        hosts = self._access.hosts
        if hosts is None and are_keys_needed:
            return
        name, is_this_machine = _name_in(request.headers.get("host", ""))
        if not is_this_machine and name not in (hosts or ()):
            raise UnknownHost()


async def _visitor(request: Request, callers: Callers, are_keys_needed: bool) -> _Visitor:
    """Return who asks.

    Raises:
        NotIdentified: Nobody knows.
    """
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and are_keys_needed:
        return _Visitor(await callers.by_key(key.strip()), has_key=True)
    if not are_keys_needed:
        return _Visitor(EVERYBODY)
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        raise NotIdentified()
    return _Visitor(await callers.by_sign_in(cookie), has_cookie=True)


CheckCaller = Callable[[], Awaitable[None]]
"""Finds out if who was let in still would be: what goes on for long asks again before it tells."""


async def _check_caller(request: Request, callers: Callers) -> None:
    """Ask once more who it is.

    Raises:
        NotIdentified: The key was revoked meanwhile, or the sign-in is over, or the first key made.
        StoreUnavailable: The database does not answer.
    """
    await _visitor(request, callers, await callers.are_keys_needed())


async def nothing_to_check() -> None:
    """Know whoever asks: what a store in memory serves is open to everybody."""


def _check_site(request: Request, must_tell: bool) -> None:
    """Refuse what a page of another site sends in the name of who looks at it.

    Args:
        request: What a browser may have sent.
        must_tell: Whether a request is refused that does not say where it comes from. A program
            does not, a browser does.

    Raises:
        NotAllowed: It comes from elsewhere.
    """
    if request.method in SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_ours = site in ("same-origin", "none")
    elif origin is not None:
        is_ours = urlsplit(origin).netloc == request.headers.get("host")
    else:
        is_ours = not must_tell
    if not is_ours:
        raise NotAllowed("A page of another site may not do that.")


@lru_cache(maxsize=256)
def _name_in(host: str) -> tuple[str, bool]:
    """Return the name in a `Host` header, if it is one, and whether it is this machine's own."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # half of an address in brackets
        name = ""
    return name, is_loopback(name)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine's own, whoever asks."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _max_bytes(request: Request) -> int | None:
    """Return how large the body may be; None: its route says it.

    Raises:
        TooLarge: It says that it is larger.
    """
    if request.scope["path"] in BOUNDED_BY_THEMSELVES:
        return None
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > MAX_BYTES:
        raise _TOO_LARGE
    return MAX_BYTES


_TOO_LARGE = TooLarge(f"A body may have {MAX_BYTES} bytes here.")


def _counting(receive: Receive, count: Callable[[int], None], max_bytes: int | None) -> Receive:
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            received = len(message.get("body", b""))
            size += received
            count(received)
            if max_bytes is not None and size > max_bytes:
                # In the way that FastAPI passes on from where it reads a body.
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(_TOO_LARGE))
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = {name for name, _ in message["headers"]}
            ours = [each for each in _SENT_HEADERS if each[0] not in said]
            message["headers"] = [*message["headers"], *ours]
        await send(message)

    return sent
