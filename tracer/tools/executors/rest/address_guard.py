"""Which addresses tools may reach: public ones, and what an allow-list names.

A name is resolved once, all its addresses are judged, and one of those that were judged is dialled:
a second look-up could answer something else. The guard is a network backend below the connection
pool, so TLS and the `Host` header still go by the name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore2
import httpx2

from tracer.errors import AddressRefused, ConfigurationError
from tracer.tasks import earlier, seconds_left

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Answers the addresses of a host name, as text; raises `OSError` where there are none."""

_SPECIAL_V4 = tuple(
    IPv4Network(network)
    for network in (
        "168.63.129.16/32",  # Azure's metadata
        "192.0.0.0/24",  # protocol assignments, Oracle's metadata among them
        "192.88.99.0/24",  # relays from 6to4
    )
)
"""What `ipaddress` takes for public, on some version or other, and is not."""

_UNICAST_V6 = IPv6Network("2000::/3")
"""All that is assigned to public hosts of IPv6."""
_SPECIAL_V6 = (IPv6Network("3fff::/20"),)  # documentation
_NOT_UNICAST_BUT_WRAPPING = tuple(
    IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/96",  # NAT64 of the local network
    )
)
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The first half of an interface's identifier that ends in its IPv4 address."""


def is_public(address: str) -> bool:
    """Return whether an address is one on the public internet.

    An IPv6 address that carries an IPv4 address goes where that one goes, and is judged by it.

    Args:
        address: An address as text; anything else is not public.
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
    if any(address in network for network in _NOT_UNICAST_BUT_WRAPPING):
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
    """Return the addresses of a host as the system knows them.

    Raises:
        OSError: There are none.
    """
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in answers))


def allowed_host(entry: str) -> tuple[str, int | None]:
    """Return host and port of an entry of an allow-list; no port means any.

    Raises:
        ConfigurationError: It is neither `host` nor `host:port`.
    """
    text = f"[{entry}]" if entry.count(":") > 1 and not entry.startswith("[") else entry
    try:
        url = httpx2.URL(f"any://{text}")
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if not url.host or set("/?#@*") & set(text):
        raise ConfigurationError(
            f"{entry!r} names no host that tools may reach: write a host, or host:port."
        )
    return url.raw_host.decode(), url.port


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections to public addresses, and to the hosts of an allow-list."""

    def __init__(self, allowed_hosts: Iterable[str] = (), resolve: Resolve = resolve) -> None:
        """Make a backend.

        Args:
            allowed_hosts: Hosts that may be reached wherever they are, as `host` or `host:port`,
                named as the URL names them.
            resolve: Looks up names.

        Raises:
            ConfigurationError: An entry of `allowed_hosts` cannot be read.
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
        """Connect to the first address of a host that answers.

        Raises:
            AddressRefused: One of the host's addresses is not public.
            httpcore2.ConnectError: The host has no address, or none that answers.
            httpcore2.ConnectTimeout: None answered in time.
        """
        deadline = earlier(None, timeout)
        addresses = await self._addresses(host, port, timeout)
        error: Exception = httpcore2.ConnectError("The host has no address.")
        for untried, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            left = seconds_left(deadline)
            share = None if left is None else left / untried
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
            raise httpcore2.ConnectTimeout("The host's name was not resolved in time.") from None
        except (OSError, UnicodeError):
            raise httpcore2.ConnectError("The host's name cannot be resolved.") from None
        if self._allowed.isdisjoint({(host, None), (host, port)}) and not all(
            is_public(address) for address in addresses
        ):
            # Not which address: whoever asks may be looking for what is inside.
            raise AddressRefused(
                f"{host} is no public address: tools may reach it only where the configuration "
                "allows that host. Do without it."
            )
        return addresses

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool asks for between attempts."""
        await self._network.sleep(seconds)
