"""Runs that the server itself carries out: started, watched and cancelled over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from tests.api.conftest import client_of, serving_parts
from tests.trees import complete
from tracer.runtime.scripted_model import Gate, Script, ScriptedModel, Turn, call

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENDED = ("succeeded", "failed", "cancelled")


@asynccontextmanager
async def serving(
    database_url: str, spool: Path, model: ScriptedModel, patience: float | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client of a server that runs one agent, the nurse; see `serving_parts`."""
    async with (
        serving_parts(database_url, spool, model, patience=patience) as parts,
        client_of(parts) as client,
    ):
        yield client


async def ended(client: httpx2.AsyncClient, root_plan_id: str) -> dict[str, Any]:
    """Return the run once it has ended."""
    async with asyncio.timeout(60):
        while True:
            run: dict[str, Any] = (await client.get(f"/api/runs/{root_plan_id}")).json()
            if run.get("status") in ENDED:
                return run


async def test_started_run_is_readable_at_once_and_continues(
    database_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    turns = [Turn(calls=[call("measure")], gate=gate), Turn(text="121 over 79")]
    async with serving(database_url, tmp_path, ScriptedModel([Script(turns)])) as client:
        answer = await client.post(
            "/api/runs",
            json={"request": "How is p-1?", "agent": "nurse", "sessionId": "s-1"},
            headers={"traceparent": TRACEPARENT},
        )
        started = answer.json()
        gate.opened.set()
        run = await ended(client, started["rootPlanId"])
        tree = complete((await client.get(f"/api/plans/{started['rootPlanId']}/tree")).json())

    assert answer.status_code == 202
    assert started["status"] == "running"
    assert (run["status"], run["sessionId"], run["toolCalls"]) == ("succeeded", "s-1", 1)
    assert run["traceparent"] == TRACEPARENT
    assert tree["summary"] == "121 over 79"
    assert tree["userRequest"] == "How is p-1?"


async def test_secrets_are_masked_in_stored_records_but_not_in_the_chat_response(
    database_url: str, tmp_path: Path
) -> None:
    secret = f"ghp_{'a' * 36}"
    turns = [Turn(text=f"{secret} is no password.")]
    model = ScriptedModel([Script(turns, times=2)])
    async with serving(database_url, tmp_path, model) as client:
        asked = {"request": f"Is {secret} one?", "agent": "nurse", "sessionId": secret}
        started = await client.post("/api/runs", json=asked)
        kept = await ended(client, started.json()["rootPlanId"])
        said = {"message": asked["request"], "userId": "u-1", "agent": "nurse"}
        streamed = await client.post("/api/v1/chat", json=said)
        kept_too = (await client.get("/api/runs")).text

    assert (started.json()["sessionId"], started.json()["title"]) == (secret, kept["title"])
    assert kept["sessionId"] == "[masked: github_token]"
    assert kept["title"] == "Is [masked: github_token] one?"
    assert f"{secret} is no password." in streamed.text
    assert secret not in kept_too


async def test_plan_in_the_request_is_run_step_by_step(database_url: str, tmp_path: Path) -> None:
    model = ScriptedModel([Script([Turn(text="done")], times=2)])
    plan = {"title": "Rounds", "steps": [{"request": "Bed 1"}, {"request": "Bed 2"}]}
    async with serving(database_url, tmp_path, model) as client:
        answer = await client.post("/api/runs", json={"request": "Do it", "plan": plan})
        run = await ended(client, answer.json()["rootPlanId"])
        tree = complete((await client.get(f"/api/plans/{run['rootPlanId']}/tree")).json())

    assert (run["status"], run["title"]) == ("succeeded", "Rounds")
    assert [step["request"] for step in tree["agentExecutions"]] == ["Bed 1", "Bed 2"]


async def test_cancel_request_cancels_the_run_and_its_open_records(
    database_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with serving(
        database_url, tmp_path, ScriptedModel([Script([Turn(gate=gate)])])
    ) as client:
        answer = await client.post("/api/runs", json={"request": "How is p-1?", "agent": "nurse"})
        root_plan_id = answer.json()["rootPlanId"]
        await gate.reached.wait()
        wished = await client.post(f"/api/runs/{root_plan_id}/cancel")
        run = await ended(client, root_plan_id)
        again = await client.post(f"/api/runs/{root_plan_id}/cancel")

    assert wished.status_code == 202
    assert (run["status"], run["reason"]) == ("cancelled", "cancel_requested")
    assert again.status_code == 409
    with psycopg.connect(database_url) as connection:
        for table in ("plan_execution_record", "agent_execution_record", "think_act_record"):
            rows = connection.execute(f"SELECT status::text FROM {table}").fetchall()
            assert rows == [("cancelled",)]


async def test_cancel_request_on_any_server_reaches_the_running_process(
    database_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    idle = ScriptedModel([])
    async with (
        serving(database_url, tmp_path, ScriptedModel([Script([Turn(gate=gate)])])) as one,
        serving(database_url, tmp_path / "other", idle) as other,
    ):
        answer = await one.post("/api/runs", json={"request": "How is p-1?", "agent": "nurse"})
        await gate.reached.wait()
        await other.post(f"/api/runs/{answer.json()['rootPlanId']}/cancel")
        run = await ended(other, answer.json()["rootPlanId"])

    assert run["status"] == "cancelled"


async def test_unknown_agent_is_rejected_with_the_known_ones(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path, ScriptedModel([])) as client:
        answer = await client.post("/api/runs", json={"request": "Hello", "agent": "doctor"})
        listed = (await client.get("/api/runs")).json()

    assert answer.status_code == 400
    assert "nurse" in answer.json()["detail"]
    assert listed["items"] == []


async def test_steps_without_an_agent_use_the_agent_of_the_run(
    database_url: str, tmp_path: Path
) -> None:
    model = ScriptedModel([Script([Turn(text="done")])])
    plan = {"title": "Rounds", "steps": [{"request": "Bed 1"}]}
    async with serving(database_url, tmp_path, model) as client:
        body = {"request": "Do it", "agent": "nurse", "plan": plan}
        run = await ended(client, (await client.post("/api/runs", json=body)).json()["rootPlanId"])
        refused = await client.post("/api/runs", json={**body, "agent": "nobody"})

    assert run["agentName"] == "nurse"
    assert refused.status_code == 400


async def test_starting_a_run_gets_202_before_the_run_is_stored(
    database_url: str, tmp_path: Path
) -> None:
    model = ScriptedModel([Script([Turn(text="done")])])
    async with serving(database_url, tmp_path, model, patience=0.1) as client:
        async with await psycopg.AsyncConnection.connect(database_url) as elsewhere:
            await elsewhere.execute("LOCK TABLE run IN EXCLUSIVE MODE")
            answer = await client.post("/api/runs", json={"request": "Hello", "agent": "nurse"})
        run = await ended(client, answer.json()["rootPlanId"])

    assert (answer.status_code, answer.json()["status"]) == (202, "running")
    assert run["status"] == "succeeded"


async def test_empty_request_is_rejected(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path, ScriptedModel([])) as client:
        for request in ("", "  \n "):
            answer = await client.post("/api/runs", json={"request": request})

            assert answer.status_code in (400, 422)
