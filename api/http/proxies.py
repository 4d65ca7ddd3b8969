"""The client's address and scheme as reverse proxies report them.

A server believes `X-Forwarded-For` and `X-Forwarded-Proto` from the peers in `FORWARDED_ALLOW_IPS`
only. uvicorn by itself believes every program on this machine, and takes any text for an address.
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
    """Return `app` with the clients' addresses from the headers of the proxies in `allowed`.

    If the address that a proxy reports is not an IP address, the request keeps the proxy's.

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
    """Return an IP address in its canonical form; None if `text` is anything else."""
    if "%" in text:  # the zone of an IPv6 address may be any text
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
