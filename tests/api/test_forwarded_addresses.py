"""`X-Forwarded-For`: which peers may send it, and which values count."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api.commands import serving_here
from tracer.errors import ConfigurationError
from tracer.logs import configure_logs

LOOPBACK = "127.0.0.1"
CANARY = "canary"
HOSTILE = [
    CANARY,
    "",
    "unknown",
    f"{CANARY}.example",
    f'{{"{CANARY}": 1}}',
    f"10.0.0.7 {CANARY}",
    f"10.0.0.7\0{CANARY}",
    f"10.0.0.7\t{CANARY}",
    f"10.0.0.7\n {CANARY}",
    f"fe80::1%{CANARY}",
    f"[fe80::1%{CANARY}]:80",
    f"{CANARY}, 127.0.0.1",
    "10.0.0.7.",
    "010.0.0.7",
    "10.0.0.7/8",
    "1" * 5_000,
    CANARY * 1_000,
]


def clients_logged(database_url: str, home: Path, values: Sequence[str]) -> list[str]:
    """Return the `client` of each request that was logged, one request for each header value."""
    stream = io.StringIO()
    with serving_here(database_url, home) as address:
        configure_logs(stream=stream)
        for value in values:
            connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
            connection.putrequest("GET", "/openapi.json")
            connection.putheader("X-Forwarded-For", value)
            connection.endheaders()
            assert connection.getresponse().status in (200, 400)
            connection.close()
    assert CANARY not in stream.getvalue()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line["client"] for line in lines if line["event"] == "request"]


def test_forwarded_header_is_ignored_if_no_proxy_is_configured(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    values = ["10.0.0.7", "::1", *HOSTILE]

    assert set(clients_logged(database_url, tmp_path, values)) == {LOOPBACK}


def test_forwarded_header_from_an_untrusted_peer_is_ignored(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.0/8, ::1")

    assert clients_logged(database_url, tmp_path, ["10.0.0.7"]) == [LOOPBACK]


@pytest.mark.parametrize("allowed", ["127.0.0.0/8, ::1", "*"])
def test_forwarded_header_of_the_proxy_is_used_if_it_is_an_address(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", allowed)
    expected = {
        "10.0.0.7": "10.0.0.7",
        "10.0.0.7:1234": "10.0.0.7",
        "2001:DB8:0:0::1": "2001:db8::1",
        "[2001:db8::1]:80": "2001:db8::1",
    }

    clients = clients_logged(database_url, tmp_path, [*expected, *HOSTILE])

    assert clients[: len(expected)] == [*expected.values()]
    assert set(clients[len(expected) :]) == {LOOPBACK}


def test_last_address_of_the_forwarded_header_is_the_client(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    values = ["10.0.0.1, 10.0.0.7", f"{CANARY}, 10.0.0.7", "10.0.0.7, 127.0.0.1"]

    assert clients_logged(database_url, tmp_path, values) == ["10.0.0.7"] * 3


@pytest.mark.parametrize("allowed", ["localhost", "10.0.0.1/8", "10.0.0.7, *", "10.0.0"])
def test_invalid_proxy_address_in_the_variable_is_rejected(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", allowed)

    with (
        pytest.raises(ConfigurationError, match="FORWARDED_ALLOW_IPS"),
        serving_here(database_url, tmp_path),
    ):
        pytest.fail("the server started")
