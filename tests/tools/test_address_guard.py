"""The address guard, which rejects requests of tools to private addresses."""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.http_servers import http_server, reply
from tests.tools.tables import not_rejected, wrong_values
from tracer.errors import AddressRefused, ConfigurationError
from tracer.tools.http_clients import GuardedBackend, allowed_host, is_public, resolve

INSIDE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
]
OUTSIDE = ["1.1.1.0/24", "8.8.8.0/24", "93.184.0.0/16", "151.101.0.0/16", "203.0.112.0/24"]


def _v6(prefix: str, tail: int) -> str:
    return str(IPv6Address(int(IPv6Address(prefix)) | tail))


WRAPPED: dict[str, Callable[[int], str]] = {
    "plain": lambda v4: str(IPv4Address(v4)),
    "mapped": lambda v4: _v6("::ffff:0:0", v4),
    "mapped with dots": lambda v4: f"::ffff:{IPv4Address(v4)}",
    "compatible": lambda v4: _v6("::", v4),
    "translated": lambda v4: _v6("::ffff:0:0:0", v4),
    "6to4": lambda v4: _v6("2002::1", v4 << 80),
    "NAT64": lambda v4: _v6("64:ff9b::", v4),
    "local NAT64": lambda v4: _v6("64:ff9b:1::", v4),
    "Teredo's client": lambda v4: _v6("2001:0:808:808::", v4 ^ 0xFFFFFFFF),
    "Teredo's server": lambda v4: _v6("2001::f7f7:f7f7", v4 << 64),
    "ISATAP": lambda v4: _v6("2600:1::5efe:0:0", v4),
    "ISATAP, local": lambda v4: _v6("2600:1::200:5efe:0:0", v4),
}


def _addresses(networks: list[str]) -> st.SearchStrategy[int]:
    return st.one_of(*[st.ip_addresses(network=each) for each in networks]).map(int)


@given(_addresses(INSIDE))
def test_private_ipv4_address_embedded_in_ipv6_is_refused(v4: int) -> None:
    assert [wrapped for wrapped, wrap in WRAPPED.items() if is_public(wrap(v4))] == []


@given(_addresses(OUTSIDE))
def test_public_ipv4_address_embedded_in_ipv6_is_allowed(v4: int) -> None:
    assert [wrapped for wrapped, wrap in WRAPPED.items() if not is_public(wrap(v4))] == []


def test_special_purpose_addresses_and_invalid_text_are_refused() -> None:
    inner = [
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "192.88.99.1",
        "255.255.255.255",
        "203.0.113.1",
        "::",
        "::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "2600::1%eth0",
        "fec0::1",
        "ff0e::1",
        "2001:db8::1",
        "3fff::1",
        "100::1",
        "4000::1",
        "64:ff9b:1:a00:0:100:808:808",  # 10.0.0.1, if read as a /48
        "fe80::5efe:808:808",
        "localhost",
        "0x7f000001",
        "",
        *(wrap(int(IPv4Network(each)[0])) for each in INSIDE for wrap in WRAPPED.values()),
    ]
    assert [address for address in inner if is_public(address)] == []


def test_public_ipv6_addresses_are_allowed() -> None:
    assert is_public("2606:4700:4700::1111")
    assert is_public("2a00:1450:4001:830::200e")


def _answering(*addresses: str) -> Callable[[str, int], Awaitable[list[str]]]:
    async def look_up(host: str, port: int) -> list[str]:
        return list(addresses)

    return look_up


async def test_host_name_that_resolves_to_a_private_address_is_refused() -> None:
    answers = [
        ("93.184.216.34", "10.0.0.1"),
        ("2606:4700:4700::1111", "::ffff:127.0.0.1"),
        ("127.0.0.1",),
    ]
    for addresses in answers:
        backend = GuardedBackend(resolve=_answering(*addresses))
        with pytest.raises(AddressRefused) as refused:
            await backend.connect_tcp("evil.example", 80, timeout=5)
        assert not any(address in str(refused.value) for address in addresses)


async def test_loopback_address_is_refused_in_every_notation() -> None:
    hosts = [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.1",
        "0x7f.1",
        "localhost",
        "::1",
    ]
    for host in hosts:
        with pytest.raises(AddressRefused):
            await GuardedBackend().connect_tcp(host, 80, timeout=5)


async def test_connection_uses_the_address_that_was_checked() -> None:
    asked = []

    async def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        # As a name server does that rebinds: the second answer differs.
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    async with http_server(lambda _: reply(body="here")) as server:
        backend = GuardedBackend(["inner.example"], look_up)
        stream = await backend.connect_tcp("inner.example", server.port, timeout=60)
        assert stream.get_extra_info("server_addr") == ("127.0.0.1", server.port)
        await stream.aclose()
    assert asked == ["inner.example"]


async def test_next_address_of_a_host_is_tried_if_one_does_not_answer() -> None:
    async with http_server(lambda _: reply(body="here")) as server:
        # Nothing listens on the first: the server is on one address of the loopback network.
        backend = GuardedBackend(["inner.example"], _answering("127.0.0.9", "127.0.0.1"))
        stream = await backend.connect_tcp("inner.example", server.port, timeout=60)
        assert stream.get_extra_info("server_addr") == ("127.0.0.1", server.port)
        await stream.aclose()


async def test_host_name_without_addresses_is_a_connection_error() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    for backend in (GuardedBackend(resolve=look_up), GuardedBackend(resolve=_answering())):
        with pytest.raises(httpcore2.ConnectError):
            await backend.connect_tcp("nowhere.example", 80, timeout=5)


async def test_host_name_lookup_ends_at_the_timeout() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(httpcore2.ConnectTimeout):
        await GuardedBackend(resolve=look_up).connect_tcp("slow.example", 80, timeout=0.05)


async def test_host_names_are_resolved_by_the_operating_system() -> None:
    assert "127.0.0.1" in await resolve("localhost", 80)


def test_allow_list_entry_is_a_host_with_or_without_a_port() -> None:
    expected = {
        "inner.example": ("inner.example", None),
        "Inner.Example:8080": ("inner.example", 8080),
        "inner.example:80": ("inner.example", 80),
        "127.0.0.1:8420": ("127.0.0.1", 8420),
        "::1": ("::1", None),
        "[::1]:8420": ("::1", 8420),
        "bücher.example": ("xn--bcher-kva.example", None),
    }
    assert wrong_values(allowed_host, expected) == []


def test_allow_list_entry_without_a_host_is_rejected() -> None:
    entries = "", "*", "*.example", "http://inner.example", "inner/x", "a@b", "host:port", "a:1:2"
    assert not_rejected(ConfigurationError, lambda each: GuardedBackend([each]), entries) == []


async def test_allow_list_entry_allows_only_its_host_and_port() -> None:
    for allowed in ("other.example", "inner.example:1", "example"):
        backend = GuardedBackend([allowed], _answering("127.0.0.1"))
        with pytest.raises(AddressRefused):
            await backend.connect_tcp("inner.example", 8080, timeout=5)
