"""Access by keys, scopes and sign-ins, and its expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import psycopg
import pytest

from api.middleware.authentication import COOKIE
from api.openapi import openapi_document
from tests.api.projects import Doors, two_projects
from tests.databases import everything_stored
from tests.storage.postgres.lock_waits import until
from tracer.questions import QUESTIONS
from tracer.records.access import Scope
from tracer.records.events import event_json

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def doors(database_url: str, tmp_path: Path) -> AsyncIterator[Doors]:
    async with two_projects(database_url, tmp_path) as doors:
        yield doors


@pytest.fixture
async def caching(database_url: str, tmp_path: Path) -> AsyncIterator[Doors]:
    """Two projects behind a server that caches callers for as long as the test runs."""
    async with two_projects(database_url, tmp_path, known_seconds=3_600) as doors:
        yield doors


async def create_key(doors: Doors, *scopes: str) -> dict[str, Any]:
    """Create a key over HTTP and return the response."""
    response = await doors.client.post(
        "/api/keys",
        json={"name": "made", "scopes": scopes},
        headers=bearer(doors.home.secret),
    )
    assert response.status_code == 201, response.text
    answer = response.json()
    assert isinstance(answer, dict)
    return answer


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def signed_in(doors: Doors, secret: str) -> httpx2.Response:
    return await doors.client.post("/api/sign-in", json={"key": secret}, headers=SAME_SITE)


async def test_every_operation_needs_a_key_and_its_scope(doors: Doors) -> None:
    keys = {scope: (await create_key(doors, scope))["secret"] for scope in Scope}
    checked = 0
    paths = set()
    for path, item in openapi_document()["paths"].items():
        for method, operation in item.items():
            if not operation.get("security"):
                assert operation["operationId"] in ("healthz", "readyz", "sign_in")
                continue
            (needed,) = {tuple(next(iter(each.values()))) for each in operation["security"]}
            placed = [
                each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"
            ]
            asked = path.format(**{each: doors.home.parameter(each) for each in placed})
            assert (await doors.client.request(method, asked)).status_code == 401
            for scope, secret in keys.items():
                is_allowed = scope is Scope.ADMIN or not needed or scope.value in needed
                if is_allowed:
                    continue
                response = await doors.client.request(method, asked, headers=bearer(secret))
                assert response.status_code in (403, 422), (method, path, scope)
                if response.status_code == 422:  # what it lacks is told first; nothing was done
                    assert response.json()["code"] == "invalid_request"
                checked += 1
                paths.add(path)
    assert checked > 30
    assert {"/mcp", *(f"/api/questions/{name}" for name in QUESTIONS)} <= paths


async def test_record_key_cannot_read_and_read_key_cannot_write(
    doors: Doors,
) -> None:
    record = (await create_key(doors, "record"))["secret"]
    read = (await create_key(doors, "read"))["secret"]
    events: dict[str, list[object]] = {"events": []}
    for secret, can_record, can_read in ((record, 200, 403), (read, 403, 200)):
        answer = await doors.client.post("/api/events", json=events, headers=bearer(secret))
        assert answer.status_code == can_record
        assert (await doors.client.get("/api/runs", headers=bearer(secret))).status_code == can_read
        run = f"/api/runs/{doors.home.run.root}"
        assert (await doors.client.delete(run, headers=bearer(secret))).status_code == 403


async def test_key_secrets_are_never_stored_or_returned_again(doors: Doors) -> None:
    secret = (await create_key(doors, "read"))["secret"]
    cookie = (await signed_in(doors, secret)).cookies[COOKIE]

    stored = everything_stored(doors.database_url)
    listed = (await doors.client.get("/api/keys", headers=bearer(doors.home.secret))).text

    for shown in (secret, doors.home.secret, cookie):
        assert shown not in stored
        assert shown not in listed
    assert "made" in listed


async def test_key_with_an_encoded_space_is_accepted(doors: Doors) -> None:
    headers = {"Authorization": f"Bearer%20{doors.home.secret}"}

    response = await doors.client.get("/api/runs", headers=headers)

    assert response.status_code == 200


async def test_revoked_key_and_its_sign_ins_get_401(doors: Doors) -> None:
    key = await create_key(doors, "read")
    await signed_in(doors, key["secret"])
    assert (await doors.client.get("/api/runs")).status_code == 200

    revoke = f"/api/keys/{key['keyId']}"
    gone = await doors.client.delete(revoke, headers=bearer(doors.home.secret))

    assert gone.status_code == 204
    assert (await doors.client.get("/api/runs")).status_code == 401
    refused = await doors.client.get("/api/runs", headers=bearer(key["secret"]))
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    listed = await doors.client.get("/api/keys", headers=bearer(doors.home.secret))
    [revoked] = [each for each in listed.json()["items"] if each["keyId"] == key["keyId"]]
    assert revoked["revokedAt"] is not None
    assert revoked["lastUsedAt"] is not None


@pytest.mark.parametrize("is_browser", [True, False])
async def test_live_stream_ends_when_its_key_is_revoked(doors: Doors, is_browser: bool) -> None:
    key = await create_key(doors, "read")
    headers = bearer(key["secret"])
    if is_browser:
        headers = {"Cookie": f"{COOKIE}={(await signed_in(doors, key['secret'])).cookies[COOKIE]}"}
        doors.client.cookies.clear()
    run = doors.home.run

    async def watched() -> bool:
        return doors.watch.watchers > 0

    async with asyncio.timeout(60):
        # The whole answer comes when it ends.
        watching = asyncio.create_task(
            doors.client.get(f"/api/runs/{run.root}/events", headers=headers)
        )
        await until(watched)
        revoke = f"/api/keys/{key['keyId']}"
        admin = bearer(doors.home.secret)
        assert (await doors.client.delete(revoke, headers=admin)).status_code == 204
        late = run.events[0].model_copy(update={"title": "said after that"})
        body = {"events": [orjson.loads(event_json(late))]}
        assert (await doors.client.post("/api/events", json=body, headers=admin)).is_success
        answer = await watching

    assert answer.status_code == 200
    assert "said after that" not in answer.text


async def test_idle_live_stream_of_a_revoked_key_ends_before_its_first_ping(
    doors: Doors, database_url: str
) -> None:
    """The stream ended at its next ping, up to 15 seconds later, instead of within two seconds."""
    key = await create_key(doors, "read")
    path = f"/api/runs/{doors.home.run.root}/events"

    async def watched() -> bool:
        return doors.watch.watchers > 0

    async with asyncio.timeout(60):
        watching = asyncio.create_task(doors.client.get(path, headers=bearer(key["secret"])))
        await until(watched)
        with psycopg.connect(database_url) as connection:  # as another server revokes it
            revoke = "UPDATE api_key SET revoked_at = now() WHERE key_id = %s"
            connection.execute(revoke, [key["keyId"]])
        answer = await watching

    assert answer.status_code == 200
    assert ": ping" not in answer.text


async def test_sign_in_cookie_is_http_only_and_same_site(doors: Doors) -> None:
    secret = (await create_key(doors, "read"))["secret"]

    answer = await signed_in(doors, secret)

    assert answer.json()["project"] == "default"
    attributes = answer.headers["set-cookie"].lower()
    assert "httponly" in attributes
    assert "samesite=strict" in attributes
    assert secret.lower() not in attributes
    out = await doors.client.delete("/api/sign-in", headers=SAME_SITE)
    assert out.status_code == 204
    held = {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}
    assert (await doors.client.get("/api/runs", headers=held)).status_code == 401


async def test_expired_sign_in_gets_401(doors: Doors) -> None:
    await signed_in(doors, doors.home.secret)
    with psycopg.connect(doors.database_url) as connection:
        connection.execute("UPDATE sign_in SET expires_at = now() - interval '1 second'")

    assert (await doors.client.get("/api/runs")).status_code == 401


def cookie(secret: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={secret}"}


async def test_cached_key_sent_as_a_cookie_gets_401(caching: Doors) -> None:
    secret = caching.home.secret
    assert (await caching.client.get("/api/runs", headers=bearer(secret))).status_code == 200

    assert (await caching.client.get("/api/runs", headers=cookie(secret))).status_code == 401


async def test_sign_in_cookie_used_as_a_key_gets_401(caching: Doors) -> None:
    secret = (await signed_in(caching, caching.home.secret)).cookies[COOKIE]
    caching.client.cookies.clear()
    assert (await caching.client.get("/api/runs", headers=cookie(secret))).status_code == 200

    assert (await caching.client.get("/api/runs", headers=bearer(secret))).status_code == 401
    assert (await signed_in(caching, secret)).status_code == 401


async def test_key_is_accepted_after_it_was_rejected_as_a_cookie(caching: Doors) -> None:
    secret = caching.home.secret
    assert (await caching.client.get("/api/runs", headers=cookie(secret))).status_code == 401

    assert (await caching.client.get("/api/runs", headers=bearer(secret))).status_code == 200


async def test_cached_sign_in_cookie_gets_401_after_sign_out(caching: Doors) -> None:
    secret = (await signed_in(caching, caching.home.secret)).cookies[COOKIE]
    caching.client.cookies.clear()
    held = cookie(secret)
    out = await caching.client.delete("/api/sign-in", headers=held | SAME_SITE)
    assert out.status_code == 204
    assert (await caching.client.get("/api/runs", headers=held)).status_code == 401


async def test_unknown_key_gets_401(doors: Doors) -> None:
    for secret in ("tracer_nobody", "ü", " ", "x" * 200):
        assert (await signed_in(doors, secret)).status_code == 401, secret
        if secret.isascii():
            answer = await doors.client.get("/api/runs", headers=bearer(secret))
            assert answer.status_code == 401, secret


async def test_key_with_only_record_scope_cannot_sign_in(doors: Doors) -> None:
    answer = await signed_in(doors, (await create_key(doors, "record"))["secret"])

    assert answer.status_code == 403
    assert COOKIE not in answer.cookies


SITES: list[tuple[dict[str, str], int]] = [
    ({"Sec-Fetch-Site": "cross-site", "Origin": "http://tracer"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Origin": "http://elsewhere"}, 403),
    ({"Origin": "null"}, 403),
    ({}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 200),
    ({"Sec-Fetch-Site": "none"}, 200),
    ({"Origin": "http://tracer"}, 200),
]


async def test_request_from_another_site_cannot_use_the_sign_in_cookie(doors: Doors) -> None:
    await signed_in(doors, doors.home.secret)
    run = f"/api/runs/{doors.home.run.root}"
    failures = []
    for headers, status in SITES:
        change = {"keepDays": 1}
        changed = await doors.client.patch("/api/project", json=change, headers=headers)
        if changed.status_code != status:
            failures.append(f"PATCH {headers}: expected {status}, got {changed.status_code}")
        if status == 403:
            deleted = await doors.client.delete(run, headers=headers)
            if deleted.status_code != status:
                failures.append(f"DELETE {headers}: expected {status}, got {deleted.status_code}")

    assert failures == []
    deleted = await doors.client.delete(run, headers=SAME_SITE)
    assert deleted.status_code == 204


async def test_request_with_a_key_needs_no_origin_header(doors: Doors) -> None:
    answer = await doors.client.delete(
        f"/api/runs/{doors.home.run.root}", headers=bearer(doors.home.secret)
    )

    assert answer.status_code == 204


async def test_starting_a_run_for_another_project_gets_403(doors: Doors) -> None:
    asked = {"request": "Measure"}
    answers = [
        await doors.client.post("/api/runs", json=asked, headers=bearer(each.secret))
        for each in (doors.home, doors.other)
    ]

    assert [each.status_code for each in answers] == [202, 403]


async def test_responses_to_another_origin_have_no_cors_headers(doors: Doors) -> None:
    headers = {"Origin": "http://elsewhere", "Access-Control-Request-Method": "GET"}
    for answer in (
        await doors.client.options("/api/runs", headers=headers),
        await doors.client.get("/api/runs", headers=bearer(doors.home.secret) | headers),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_body_limit_applies_with_and_without_content_length(doors: Doors) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 2**20

    headers = bearer(doors.home.secret) | {"Content-Type": "application/json"}
    for content in (b" " * 5 * 2**20, parts()):
        answer = await doors.client.post("/api/keys", content=content, headers=headers)
        assert answer.status_code == 413
