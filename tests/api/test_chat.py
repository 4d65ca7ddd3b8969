"""The chat endpoint: it runs a message, streams the run, and never records the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.api.conftest import client_of, serving_parts
from tests.databases import everything_stored
from tests.trees import complete
from tracer.errors import ToolError
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools import SessionState, Tool, tool
from tracer.tools.parameters import UserId

ALICE, BOB = "alice-canary-8c1f", "bob-canary-77d0"


def record_tool(seen: list[tuple[str, int]]) -> Tool:
    @tool
    async def record_blood_pressure(
        user_id: UserId, state: SessionState, systolic: int, diastolic: int
    ) -> str:
        """Record a reading."""
        seen.append((user_id, systolic))
        state.increment("messages")
        return f"Recorded {systolic}/{diastolic} for {user_id}."

    return record_blood_pressure


def recording(systolic: int = 120) -> list[Turn]:
    arguments = {"systolic": systolic, "diastolic": 80, "userId": "mallory"}
    return [
        Turn(text="I record it.", calls=[call("record_blood_pressure", arguments)]),
        Turn(text=f"Recorded {systolic}/80."),
    ]


@asynccontextmanager
async def serving(
    database_url: str, home: Path, scripts: Sequence[Script], seen: list[tuple[str, int]]
) -> AsyncIterator[httpx2.AsyncClient]:
    model = ScriptedModel(scripts)
    async with (
        serving_parts(database_url, home, model, [record_tool(seen)]) as parts,
        client_of(parts) as client,
    ):
        yield client
    model.check_used_up()


async def say(client: httpx2.AsyncClient, user: str, **more: str) -> list[tuple[str, Any]]:
    """Return the events that a message streams, as (name, data)."""
    asked = {"message": "记录血压120/80", "user_id": user, "agent": "nurse", **more}
    answer = await client.post("/api/v1/chat", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
        events.append((fields["event"], orjson.loads(fields["data"])))
    return events


async def test_chat_message_runs_for_its_user_without_recording_the_user_id(
    database_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, int]] = []
    async with serving(database_url, tmp_path, [Script(recording())], seen) as client:
        events = await say(client, ALICE, session_id="session456")

    names = [name for name, _ in events]
    assert names == [
        "run",
        "plan_started",
        "step_started",
        "thought_started",
        "thought_recorded",
        "tool_call_finished",
        "thought_started",
        "thought_recorded",
        "step_finished",
        "plan_finished",
        "answer",
    ]
    [run, *_, answer] = [data for _, data in events]
    assert answer == {
        "rootPlanId": run["rootPlanId"],
        "status": "succeeded",
        "answer": "Recorded 120/80.",
    }
    assert run["sessionId"] == "session456"
    assert seen == [(ALICE, 120)]
    everything = repr(events) + everything_stored(database_url) + "".join(capfd.readouterr())
    assert ALICE not in everything
    assert "mallory" not in everything
    assert "Recorded 120/80 for [hidden]." in everything


async def test_tools_of_concurrent_chats_receive_the_right_caller(
    database_url: str, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []
    scripts = [Script(recording(n), request=f"message {n}.") for n in range(100, 110)]
    async with serving(database_url, tmp_path, scripts, seen) as client:
        await asyncio.gather(
            *(say(client, (ALICE, BOB)[n % 2], message=f"message {n}.") for n in range(100, 110))
        )

    assert sorted(seen) == sorted(((ALICE, BOB)[n % 2], n) for n in range(100, 110))


async def test_second_message_of_a_session_sees_the_session_state(
    database_url: str, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []
    async with serving(database_url, tmp_path, [Script(recording(), times=2)], seen) as client:
        await say(client, ALICE, session_id="s-1")
        [run, *_] = [data for _, data in await say(client, ALICE, sessionId="s-1")]
        tree = complete((await client.get(f"/api/plans/{run['rootPlanId']}/tree")).json())
        round_ = tree["agentExecutions"][0]["thinkActs"][0]
        whole = (await client.get(f"/api/think-acts/{round_['thinkActId']}")).json()

    assert "So far: 1." in whole["messages"]


async def test_session_id_of_another_user_gives_no_access_to_the_session_state(
    database_url: str, tmp_path: Path
) -> None:
    seen: list[tuple[str, int]] = []
    async with serving(database_url, tmp_path, [Script(recording(), times=2)], seen) as client:
        await say(client, ALICE, session_id="s-1")
        [run, *_] = [data for _, data in await say(client, BOB, session_id="s-1")]
        tree = complete((await client.get(f"/api/plans/{run['rootPlanId']}/tree")).json())
        round_ = tree["agentExecutions"][0]["thinkActs"][0]
        whole = (await client.get(f"/api/think-acts/{round_['thinkActId']}")).json()

    assert "So far: 0." in whole["messages"]


async def test_failed_run_ends_the_chat_stream_with_the_reason(
    database_url: str, tmp_path: Path
) -> None:
    broken = Script([Turn(error=ToolError("no model today"))])
    async with serving(database_url, tmp_path, [broken], []) as client:
        [_, answer] = (await say(client, ALICE))[-1]

    assert (answer["status"], answer["reason"]) == ("failed", "step_failed")
    assert "stack" not in answer["error"]


async def test_invalid_chat_message_is_rejected_before_the_stream_starts(
    database_url: str, tmp_path: Path
) -> None:
    cases: list[tuple[dict[str, object], int, str]] = [
        ({"message": "Hi", "user_id": ALICE, "agent": "nobody"}, 400, "bad_request"),
        ({"message": "  ", "user_id": ALICE}, 400, "bad_request"),
        ({"message": "Hi"}, 422, "invalid_request"),
        ({"message": "Hi", "user_id": ""}, 422, "invalid_request"),
        ({"message": "Hi", "user_id": [ALICE]}, 422, "invalid_request"),
    ]
    async with serving(database_url, tmp_path, [], []) as client:
        for body, status, code in cases:
            answer = await client.post("/api/v1/chat", json=body)

            assert (answer.status_code, answer.json()["code"]) == (status, code), body
            assert ALICE not in answer.text
