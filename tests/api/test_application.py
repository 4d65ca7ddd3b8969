"""A server's application: none, loading, ready and failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.main import server_parts
from api.parts import Parts
from tests.api import ward
from tests.api.commands import tracer
from tests.api.conftest import client_of as client_without_host
from tracer.errors import ApplicationUnavailable, ConfigurationError, StoreUnavailable
from tracer.runtime import Application, RunLauncher, Surroundings
from tracer.runtime.launcher import ServedApplication
from tracer.settings import read_settings
from tracer.tools.config import read_tools

REQUESTS = {
    "/api/runs": {"request": "How is p-1?", "agent": "nurse"},
    "/api/v1/chat": {"message": "How is p-1?", "userId": "u-1", "agent": "nurse"},
}


def ward_with(
    resources: Callable[[Surroundings], AbstractAsyncContextManager[object]],
) -> Application:
    return Application(
        name="ward",
        agents=ward.application.agents,
        model=ward.application.model,
        resources=resources,
    )


@asynccontextmanager
async def client_for(
    database_url: str, home: Path, application: Application | None
) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        server_parts(read_settings(home=home), database_url, application) as made,
        client_of(made) as client,
    ):
        yield client


@asynccontextmanager
async def client_of(made: Parts) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_without_host(made) as client:
        client.headers["host"] = "127.0.0.1"
        yield client


async def application_state(client: httpx2.AsyncClient) -> str:
    answer = await client.get("/readyz")
    assert answer.status_code == 200, answer.text
    state: str = answer.json()["application"]
    return state


async def started(client: httpx2.AsyncClient) -> dict[str, tuple[int, str, str]]:
    """Return status, code and detail of each way to start a run."""
    answers: dict[str, Any] = {
        path: await client.post(path, json=body) for path, body in REQUESTS.items()
    }
    return {
        path: (each.status_code, each.json()["code"], each.json()["detail"])
        for path, each in answers.items()
    }


async def test_server_without_an_application_names_the_setting(
    database_url: str, tmp_path: Path
) -> None:
    async with client_for(database_url, tmp_path, None) as client:
        assert await application_state(client) == "none"
        found = await started(client)

    detail = (
        "This server runs no application. Set TRACER_APP to MODULE:NAME and restart the server."
    )
    assert found == dict.fromkeys(REQUESTS, (409, "no_application", detail))


async def test_readyz_lists_the_refused_tools_of_the_application(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "tools.toml").write_text('[tools.add]\ntype = "STATELESS"\nfunction = "add"\n')
    registry = read_tools(tmp_path / "tools.toml")
    async with client_for(
        database_url, tmp_path, replace(ward.application, registry=registry)
    ) as client:
        answer = (await client.get("/readyz")).json()

    assert answer["refusedTools"] == ["add"]
    assert "unknown name" not in str(answer)


async def test_server_answers_while_its_application_opens_its_resources(
    database_url: str, tmp_path: Path
) -> None:
    answers = asyncio.Event()

    @asynccontextmanager
    async def slow(_: Surroundings) -> AsyncIterator[None]:
        await answers.wait()
        yield

    async with (
        server_parts(read_settings(home=tmp_path), database_url, ward_with(slow)) as made,
        client_of(made) as client,
    ):
        assert await application_state(client) == "loading"
        refused = await client.post("/api/runs", json=REQUESTS["/api/runs"])
        found = await started(client)
        answers.set()
        await made.opened_launcher()
        state = await application_state(client)
        accepted = await client.post("/api/runs", json=REQUESTS["/api/runs"])

    detail = "The server's application is loading. Send the request again later."
    assert found == dict.fromkeys(REQUESTS, (503, "application_unavailable", detail))
    assert refused.headers["retry-after"] == "1"
    assert (state, accepted.status_code) == ("ready", 202)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("The diary does not answer."), "The diary does not answer."),
        (RuntimeError("password=hunter2"), "RuntimeError."),
    ],
)
async def test_failed_application_is_reported_without_secrets(
    database_url: str, tmp_path: Path, error: Exception, reason: str
) -> None:
    @asynccontextmanager
    async def broken(_: Surroundings) -> AsyncIterator[None]:
        if error:
            raise error
        yield

    async with (
        server_parts(read_settings(home=tmp_path), database_url, ward_with(broken)) as made,
        client_of(made) as client,
    ):
        with pytest.raises(ApplicationUnavailable):
            await made.opened_launcher()
        assert await application_state(client) == "failed"
        found = await started(client)

    for status, code, detail in found.values():
        assert (status, code) == (503, "application_unavailable")
        assert f"cannot be opened: {reason} " in detail
        assert "hunter2" not in detail


async def test_failed_application_is_opened_again(database_url: str, tmp_path: Path) -> None:
    async with server_parts(read_settings(home=tmp_path), database_url, ward.application) as made:
        launcher = await made.opened_launcher()
        attempts: list[int] = []
        is_second = asyncio.Event()

        @asynccontextmanager
        async def second_time() -> AsyncIterator[RunLauncher]:
            attempts.append(len(attempts))
            if len(attempts) == 1:
                raise StoreUnavailable
            is_second.set()
            yield launcher

        async with ServedApplication().opening(second_time, retry_seconds=0) as application:
            with pytest.raises(ApplicationUnavailable):
                await application.opened()
            await is_second.wait()
            assert application.state == "ready"


async def test_server_stops_while_its_application_is_loading(
    database_url: str, tmp_path: Path
) -> None:
    cancelled = asyncio.Event()
    opening = asyncio.Event()

    @asynccontextmanager
    async def hanging(_: Surroundings) -> AsyncIterator[None]:
        opening.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        yield

    async with server_parts(read_settings(home=tmp_path), database_url, ward_with(hanging)):
        await opening.wait()

    assert cancelled.is_set()


async def test_resources_close_when_the_server_stops(database_url: str, tmp_path: Path) -> None:
    closed = asyncio.Event()

    @asynccontextmanager
    async def closing(_: Surroundings) -> AsyncIterator[None]:
        yield
        closed.set()
        raise ConfigurationError("not closed well")

    with pytest.raises(ConfigurationError, match="not closed well"):
        async with server_parts(
            read_settings(home=tmp_path), database_url, ward_with(closing)
        ) as made:
            await made.opened_launcher()

    assert closed.is_set()


def test_wrong_application_ends_the_start(database_url: str, tmp_path: Path) -> None:
    done = tracer(
        tmp_path,
        *("serve", "--port", "0"),
        TRACER_APP="nowhere:application",
        TRACER_DATABASE_URL=database_url,
    )

    assert done.code == 1
    assert "TRACER_APP names 'nowhere:application', which cannot be loaded" in done.stderr


def test_run_without_an_application_names_the_setting(tmp_path: Path) -> None:
    done = tracer(tmp_path, "run", "How is p-1?", TRACER_APP="", TRACER_URL="http://127.0.0.1:1")

    assert done.code == 1
    assert "TRACER_APP names no application. Set it to MODULE:NAME" in done.stderr


async def test_tree_is_redirected_to_from_the_address_of_the_seed_document(
    database_url: str, tmp_path: Path
) -> None:
    plan_id = "0192f0c1-7a1e-7c3b-9d9e-0f0e0d0c0b0a"
    async with client_for(database_url, tmp_path, None) as client:
        answer = await client.get(f"/api/executor/details/{plan_id}?depth=1")
        odd = await client.get("/api/executor/details/a%3Fb")

    assert answer.status_code == odd.status_code == 308
    assert answer.headers["location"] == f"/api/plans/{plan_id}/tree?depth=1"
    assert odd.headers["location"] == "/api/plans/a%3Fb/tree"
