"""Take the client's address and scheme from the headers of trusted reverse proxies.

The headers `X-Forwarded-For` and `X-Forwarded-Proto` count only if a peer in `FORWARDED_ALLOW_IPS`
sent them. uvicorn's own middleware is not used, because it trusts every program on this machine,
and accepts any text as an address.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tracer.errors import ConfigurationError

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
