"""Captures that a collector forwards become the same records, also after an outage of the server.

The collector is `rotel`. It is no dependency, because it has no build for some machines.
With `make torture` the outage lasts a minute.
"""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.api.commands import serving_here, tracer
from tests.cli.test_spools import new_key
from tests.house.test_distributions import PROGRAMS, run
from tests.otel import captured
from tests.otel.coding_agents import captured as coding_agents
from tests.torture.lengths import IS_LONG, say
from tests.trees import complete

ROTEL = "rotel==0.0.1a15"
AWAY_SECONDS = 60.0 if IS_LONG else 0.0
ATTEMPTS = 8
"""How often the collector fails to send, at least, before the server is there again."""
HAVE_EMPTY_VALUES = "gemini-cli-"
"""The beginning of the names of captures in OTLP/JSON with `"value": {}`, which rotel rejects."""
RECEIVED = ("recordedAt", "revision", "seenAt")
"""Fields that depend on when spans were received."""


@dataclass(frozen=True)
class Request:
    path: str
    media_type: str
    body: bytes


def requests_of(folder: Path) -> Iterator[Request]:
    """Yield the requests of a capture, as they were sent."""
    for sent in json.loads((folder / "requests.json").read_text()):
        path = folder / sent["file"]
        packed = path.with_name(f"{path.name}.gz")
        body = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
        media_type = sent["headers"]["content-type"]
        has_empty_values = folder.name.startswith(HAVE_EMPTY_VALUES)
        if has_empty_values and "json" in media_type and "logs" in sent["path"]:
            message = json_format.Parse(body, LogsData(), ignore_unknown_fields=True)
            media_type, body = "application/x-protobuf", message.SerializeToString()
        yield Request(sent["path"], media_type, body)


REQUESTS = [
    request
    for captures in (captured.CAPTURES, coding_agents.CAPTURES)
    for folder in sorted(captures.iterdir())
    if (folder / "requests.json").exists()
    for request in requests_of(folder)
    if not request.path.endswith("metrics")
]


def send(url: str, requests: list[Request], key: str = "") -> None:
    with _client(url, key) as client:
        for each in requests:
            headers = {"Content-Type": each.media_type, "Prefer": "wait=30"}
            answer = client.post(each.path, content=each.body, headers=headers)
            assert answer.status_code == 200, answer.text


def runs(url: str, key: str, other_traces: bool = True) -> dict[str, Any]:
    """Return the runs of the key's project, by id."""
    found: dict[str, Any] = {}
    with _client(url, key) as client:
        query: dict[str, Any] = {"otherTraces": other_traces, "limit": 200}
        while "cursor" not in query or query["cursor"]:
            page = client.get("/api/runs", params=query).json()
            found |= {each["rootPlanId"]: _comparable(each) for each in page["items"]}
            query["cursor"] = page["nextCursor"]
    return found


def trees(url: str, key: str, ids: Iterable[str]) -> dict[str, Any]:
    """Return the trees of runs, by id."""
    with _client(url, key) as client:
        answers = {
            each: client.get(f"/api/plans/{each}/tree", params={"payloads": "full"}) for each in ids
        }
    return {each: _comparable(complete(answer.json())) for each, answer in answers.items()}


def different(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, str]:
    """Return what differs first in each run. pytest would compare all runs for minutes."""
    return {
        run_id: next(_differences(each, found.get(run_id), ""))
        for run_id, each in expected.items()
        if each != found.get(run_id)
    }


def _differences(expected: Any, found: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in expected.keys() | found.keys():
            yield from _differences(expected.get(name), found.get(name), f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif expected != found:
        yield f"{path}: {str(expected)[:100]} -> {str(found)[:100]}"


def _client(url: str, key: str) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx2.Client(base_url=url, headers=headers, timeout=300)


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    if isinstance(value, dict):
        return {key: _comparable(each) for key, each in value.items() if key not in RECEIVED}
    return value


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def soon(is_true: Callable[[], bool], seconds: float = 300) -> None:
    """Return when a condition is true, or after `seconds`: the caller checks the outcome."""
    Retrying(
        retry=retry_if_result(lambda found: not found),
        wait=wait_fixed(0.2),
        stop=stop_after_delay(seconds),
        retry_error_callback=lambda state: None,
    )(is_true)


@contextmanager
def collecting(folder: Path, url: str, key: str) -> Iterator[tuple[str, Path]]:
    """Run a collector that sends to the server at `url`. Yield its address and its log."""
    uv = (PROGRAMS / "uv", "pip", "install", "--quiet", "--no-deps", "--target", folder / "rotel")
    run(*uv, ROTEL)
    log, address = folder / "rotel.log", f"127.0.0.1:{free_port()}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                folder / "rotel" / "rotel" / "rotel-agent",
                *("start", "--exporter", "otlp", "--otlp-exporter-protocol", "http"),
                *("--otlp-exporter-endpoint", url, "--otlp-exporter-retry-initial-backoff", "1s"),
                *("--otlp-exporter-custom-headers", f"Authorization=Bearer {key}"),
                *("--otlp-http-endpoint", address),
                *("--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"),
                *("--pid-file", folder / "rotel.pid"),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        soon(lambda: _listens(address))
        yield f"http://{address}", log
    finally:
        process.terminate()
        process.wait(timeout=60)


def _listens(address: str) -> bool:
    try:
        httpx2.get(f"http://{address}")
    except httpx2.HTTPError:
        return False
    return True


@pytest.mark.timeout(1200)
def test_records_through_a_collector_are_the_same_after_an_outage(
    database_url: str, tmp_path: Path
) -> None:
    admin = new_key(tracer, tmp_path, database_url, "direct", "admin")
    other = new_key(tracer, tmp_path, database_url, "collected", "admin")
    recorder = new_key(tracer, tmp_path, database_url, "collected", "record")
    port, half = free_port(), len(REQUESTS) // 2
    with collecting(tmp_path, f"http://127.0.0.1:{port}", recorder) as (collector, log):
        with serving_here(database_url, tmp_path, port=port, projectors=1) as url:
            send(url, REQUESTS, admin)
            send(collector, REQUESTS[:half])
            soon(lambda: bool(runs(url, other)))
        with ThreadPoolExecutor() as threads:
            begun = time.monotonic()
            sending = threads.submit(send, collector, REQUESTS[half:])
            soon(lambda: _attempts(log) >= ATTEMPTS and time.monotonic() >= begun + AWAY_SECONDS)
            attempts = _attempts(log)
            with serving_here(database_url, tmp_path, port=port, projectors=1) as url:
                sending.result()
                expected = runs(url, admin)
                soon(lambda: runs(url, other) == expected)
                found = runs(url, other)
                work = runs(url, admin, other_traces=False)
                whole = trees(url, admin, work)
                soon(lambda: trees(url, other, work) == whole)
                seen = trees(url, other, work)

    say(
        "through a collector, while the server is away for a time",
        requests=len(REQUESTS),
        runs=len(work),
        other_traces=len(expected) - len(work),
        failed_attempts=attempts,
    )
    assert attempts >= ATTEMPTS
    if (wrong := different(expected, found) | different(whole, seen)) or found.keys() - expected:
        pytest.fail(f"{len(wrong)} runs differ: {dict(list(wrong.items())[:10])}")


def _attempts(log: Path) -> int:
    """Return how often the collector failed to send a batch."""
    return log.read_text().count("will retry")
