"""Clients and servers of different releases work together, or name what to upgrade.

`0.1.0/requests.jsonl` contains requests that the client of release 0.1.0 (commit b691235) sent, and
the answers of its server. `0.1.0/events.schema.json` is the protocol of that release.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from tests.api.conftest import Api
from tests.sample_runs import sample_run
from tracer.records.events import PROTOCOL_HEADER, PROTOCOL_VERSION, event_json
from tracer.storage.http.writer import HttpWriter

RELEASES = sorted(each for each in Path(__file__).parent.iterdir() if each.name[0].isdigit())


def exchanges(release: Path) -> Iterator[dict[str, Any]]:
    for line in (release / "requests.jsonl").read_text("utf-8").splitlines():
        yield json.loads(line)


def content(body: dict[str, str]) -> bytes:
    return base64.b64decode(body["base64"]) if "base64" in body else body["text"].encode()


@pytest.mark.parametrize("release", RELEASES, ids=lambda each: each.name)
async def test_requests_of_an_older_release_get_the_responses_of_that_release(
    release: Path, api: Api
) -> None:
    for each in exchanges(release):
        answer = await api.client.request(
            each["method"],
            each["path"],
            content=content(each["body"]),
            headers={"Content-Type": each["contentType"]} if each["contentType"] else {},
        )

        assert answer.status_code == each["status"], answer.text
        assert answer.headers[PROTOCOL_HEADER] == str(PROTOCOL_VERSION)
        if each["path"] == "/api/events":
            assert answer.json() == json.loads(each["answer"]["text"])
        if each["path"] == "/v1/traces":
            assert answer.content == content(each["answer"])


@pytest.mark.parametrize("release", RELEASES, ids=lambda each: each.name)
def test_events_are_valid_in_the_protocol_of_an_older_release(release: Path) -> None:
    if PROTOCOL_VERSION > 1:
        pytest.skip("this client speaks a newer version, whose events the release may refuse")
    validator = jsonschema_rs.validator_for(
        json.loads((release / "events.schema.json").read_text("utf-8"))
    )

    assert [
        type(event).__name__
        for event in sample_run().events
        if not validator.is_valid(json.loads(event_json(event)))
    ] == []


@pytest.mark.parametrize("release", RELEASES, ids=lambda each: each.name)
async def test_client_reads_the_responses_of_an_older_release(release: Path) -> None:
    [events] = [each for each in exchanges(release) if each["path"] == "/api/events"][:1]
    run = sample_run()
    answered = content(events["answer"])

    class Released(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            await request.aread()
            return httpx2.Response(
                events["status"], headers={"Content-Type": events["answerType"]}, content=answered
            )

    async with aclosing(HttpWriter("http://127.0.0.1:1", transport=Released())) as writer:
        answer = await writer.write(run.events)

    assert (answer.stored, answer.refused) == (len(run.events), [])


async def test_client_says_what_to_upgrade_if_a_release_refuses_an_event() -> None:
    run = sample_run()
    refusal = {"index": 0, "code": "invalid_event", "detail": "parameters: unknown."}

    async def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"stored": 0, "refused": [refusal]})

    transport = httpx2.MockTransport(answer)
    async with aclosing(HttpWriter("http://127.0.0.1:1", transport=transport)) as writer:
        answered = await writer.write(run.events[:1])

    [refused] = answered.refused
    assert refused.detail.endswith("upgrade the server.")


async def test_field_of_a_newer_client_is_refused_with_what_to_upgrade(api: Api) -> None:
    first, second = (json.loads(event_json(each)) for each in sample_run().events[:2])
    newer = {PROTOCOL_HEADER: str(PROTOCOL_VERSION + 1)}

    answer = await api.client.post(
        "/api/events", json={"events": [first, {**second, "newField": 1}]}, headers=newer
    )
    same = await api.client.post("/api/events", json={"events": [{**second, "newField": 1}]})

    [refused] = answer.json()["refused"]
    assert (answer.json()["stored"], refused["index"]) == (1, 1)
    assert refused["code"] == "invalid_event"
    assert refused["detail"].endswith(
        f"this server version {PROTOCOL_VERSION}. To record such events, upgrade the server."
    )
    assert "upgrade" not in same.json()["refused"][0]["detail"]
