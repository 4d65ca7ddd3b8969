"""Authentication: check the `Host` header, the caller and the origin of each request.

Requests are authenticated before their bodies are read. A path needs no caller only if it is
listed here as public, so a new path is protected by default. Which scope a route needs follows from
the route's dependencies (`api.dependencies`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.parts import Authenticator
from api.viewer import is_of_the_viewer
from tracer.errors import NotAllowed, NotIdentified, UnknownHost
from tracer.records.access import EVERYBODY, Caller

SIGN_IN = "/api/sign-in"
COOKIE = "tracer_sign_in"

PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""Paths that need no caller, like the viewer's files. None of them returns data of a project."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

CheckCaller = Callable[[], Awaitable[None]]
"""Authenticates the caller of a long response again. Raises `NotIdentified` if the key was revoked,
if the sign-in has expired, or if the server's first key was created in the meantime. Raises
`StoreUnavailable` if the database does not answer."""


@dataclass(frozen=True)
class Access:
    """Who may use the server, and which host names the server has."""

    authenticator: Authenticator | None = None
    """Finds callers; None admits every request, for tests in one process."""
    hosts: frozenset[str] | None = None
    """Accepted host names, in addition to this machine's own. None: if the server needs keys, any
    name is accepted, otherwise only this machine's own."""
    otlp_origins: frozenset[str] = frozenset()
    """The origins, such as `https://app.example.com`, of other sites whose pages may send OTLP."""


class Authentication:
    """Middleware that gives each request its `Caller`, or rejects it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            UnknownHost: The `Host` header has a name that is not the server's.
            NotIdentified: The request has no valid key or sign-in.
            NotAllowed: A page of another site sent the request.
        """
        if scope["type"] == "http":
            await self._authenticate(Request(scope))
        await self._app(scope, receive, send)

    async def _authenticate(self, request: Request) -> None:
        authenticator = self._access.authenticator
        if authenticator is None:
            request.state.caller, request.state.check_caller = EVERYBODY, nothing_to_check
            return
        path = request.scope["path"]  # `request.url` takes as long as all the rest
        if path in PUBLIC_PATHS or (request.method in SAFE_METHODS and is_of_the_viewer(path)):
            self._check_host(request, are_keys_needed=True)
            return
        are_keys_needed = await authenticator.are_keys_needed()
        self._check_host(request, are_keys_needed)
        if is_sign_in(request.scope):
            check_site(request)
            return
        origins = self._access.otlp_origins if is_otlp(request.scope) else frozenset[str]()
        request.state.caller = await _find_caller(request, authenticator, are_keys_needed, origins)
        request.state.check_caller = partial(_check_caller, request, authenticator)

    def _check_host(self, request: Request, are_keys_needed: bool) -> None:
        """Raise `UnknownHost` if the host name is not the server's.

        This prevents DNS rebinding: a malicious web page lets its own host name point to this
        machine, and then reads from a server that needs no keys. If the server needs keys, any
        host name may be accepted, because browsers send keys and cookies only to the host name
        that they belong to.
        """
        hosts = self._access.hosts
        if hosts is None and are_keys_needed:
            return
        name, is_this_machine = _host_name(request.headers.get("host", ""))
        if not is_this_machine and name not in (hosts or ()):
            raise UnknownHost()


def is_sign_in(scope: Scope) -> bool:
    """Return whether a request is a sign-in, which needs no authenticated caller."""
    return bool(scope["path"] == SIGN_IN and scope["method"] == "POST")


def is_otlp(scope: Scope) -> bool:
    """Return whether a request is for one of the routes that receive OTLP."""
    return bool(scope["path"].startswith("/v1/"))


async def _find_caller(
    request: Request,
    authenticator: Authenticator,
    are_keys_needed: bool,
    origins: frozenset[str] = frozenset(),
) -> Caller:
    """Return the caller of a request. A key or, without a key, a cookie identifies the caller.

    Args:
        request: The request.
        authenticator: Finds callers.
        are_keys_needed: Whether the server needs keys.
        origins: Other sites whose pages may send the request, if it needs no key.

    Raises:
        NotIdentified: The request has no valid key or sign-in.
        NotAllowed: A page of another site sent the request.
    """
    key = _bearer_key(request.headers.get("authorization", ""))
    if key is not None and are_keys_needed:
        return await authenticator.by_key(key)
    if not are_keys_needed:
        if request.headers.get("origin") not in origins:
            check_site(request)
        return EVERYBODY
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        raise NotIdentified()
    caller = await authenticator.by_sign_in(cookie)
    check_site(request, is_site_required=True)
    return caller


async def find_key_caller(authenticator: Authenticator | None, authorization: str) -> Caller:
    """Return the caller of a request that only a key can identify, such as a gRPC call.

    Args:
        authenticator: Finds callers. None admits every request.
        authorization: The value of the header `Authorization`; empty without the header.

    Raises:
        NotIdentified: The server needs keys, and the request has no valid key.
    """
    if authenticator is None or not await authenticator.are_keys_needed():
        return EVERYBODY
    key = _bearer_key(authorization)
    if key is None:
        raise NotIdentified()
    return await authenticator.by_key(key)


def _bearer_key(authorization: str) -> str | None:
    # Some exporters send OTEL_EXPORTER_OTLP_HEADERS as it is written: with %20 for the space.
    kind, _, key = authorization.replace("%20", " ", 1).partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


async def _check_caller(request: Request, authenticator: Authenticator) -> None:
    await _find_caller(request, authenticator, await authenticator.are_keys_needed())


async def nothing_to_check() -> None:
    """Do nothing: on a server without authentication, a caller's access never ends."""


def check_site(request: Request, is_site_required: bool = False) -> None:
    """Raise `NotAllowed` if a page of another site made the browser send a change of data.

    Args:
        request: The request.
        is_site_required: Whether to reject a request without the headers that name the page's
            site. Browsers send these headers; other programs do not.
    """
    if request.method in SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_ours = site in ("same-origin", "none")
    elif origin is not None:
        is_ours = urlsplit(origin).netloc == request.headers.get("host")
    else:
        is_ours = not is_site_required
    if not is_ours:
        raise NotAllowed(
            "The request came from a page of another site. Such pages may not change data."
        )


@lru_cache(maxsize=256)
def _host_name(host: str) -> tuple[str, bool]:
    """Return the name in a `Host` header ("" if invalid), and whether it is a loopback name."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # half of an address in brackets
        name = ""
    return name, is_loopback(name)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address always means this machine, as `localhost` does."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
