"""The address guard: tools may reach public addresses, and the hosts of an allow-list.

A name is resolved once, all its addresses are checked, and the connection is made to one of them: a
second lookup could return another address (DNS rebinding). The guard is a network backend below the
connection pool, so TLS and the `Host` header still use the name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpcore2
import httpx2

from tracer.errors import AddressRefused, ConfigurationError
from tracer.tasks import capped_deadline, seconds_left

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
