"""Chat history: the agent receives the earlier messages of a session."""

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
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn

ALICE, BOB = "alice-canary-8c1f", "bob-canary-77d0"
SECRET = "ghp_" + "a1B2" * 9


@asynccontextmanager
async def serving(
    database_url: str, home: Path, *messages: str
) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve an agent that answers each of the messages with "Noted: " and the message."""
    scripts = [Script([Turn(f"Noted: {each}")], request=each, times=None) for each in messages]
    async with (
        serving_parts(database_url, home, ScriptedModel(scripts)) as parts,
        client_of(parts) as client,
    ):
        yield client


async def say(client: httpx2.AsyncClient, message: str, user: str = ALICE) -> dict[str, Any]:
    """Send a message of the session `s-1` and return the run that it starts."""
    body = {"message": message, "user_id": user, "session_id": "s-1", "agent": "nurse"}
    answer = await client.post("/api/v1/chat", json=body)
    assert answer.status_code == 200, answer.text
    events = [
        dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
        for block in answer.text.strip().split("\n\n")
    ]
    ending = orjson.loads(events[-1]["data"])
    assert (events[-1]["event"], ending["status"]) == ("answer", "succeeded"), ending
    run: dict[str, Any] = orjson.loads(events[0]["data"])
    return run


async def conversation(client: httpx2.AsyncClient, run: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the model received in a run's only round, without the system message."""
    tree = complete((await client.get(f"/api/plans/{run['rootPlanId']}/tree")).json())
    [think_act] = tree["agentExecutions"][0]["thinkActs"]
    whole = (await client.get(f"/api/think-acts/{think_act['thinkActId']}")).json()
    system, *rest = orjson.loads(whole["messages"])
    assert system["role"] == "system"
    return [(each["role"], each["content"]) for each in rest]


def exchanges(*messages: str) -> list[tuple[str, str]]:
    """Return messages of a user, each with the agent's answer."""
    roles = ("user", ""), ("assistant", "Noted: ")
    return [(role, prefix + each) for each in messages for role, prefix in roles]


async def test_chat_history_survives_a_restart_of_the_server(
    database_url: str, tmp_path: Path
) -> None:
    answers = ("120 over 80", "130 over 85", "Which was higher?")
    async with serving(database_url, tmp_path, *answers) as client:
        await say(client, answers[0])
        second = await conversation(client, await say(client, answers[1]))
    async with serving(database_url, tmp_path, *answers) as client:
        third = await conversation(client, await say(client, answers[2]))

    assert second == [*exchanges(answers[0]), ("user", answers[1])]
    assert third == [*exchanges(answers[0], answers[1]), ("user", answers[2])]
    assert ALICE not in everything_stored(database_url)


async def test_another_caller_of_the_same_session_id_gets_no_history(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path, "from alice", "from bob") as client:
        await say(client, "from alice", ALICE)
        of_bob = await conversation(client, await say(client, "from bob", BOB))
        of_alice = await conversation(client, await say(client, "from alice", ALICE))

    assert of_bob == [("user", "from bob")]
    assert of_alice == [*exchanges("from alice"), ("user", "from alice")]


async def test_deleted_run_is_removed_from_the_chat_history(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path, "one", "two", "three") as client:
        first = await say(client, "one")
        await say(client, "two")
        await client.delete(f"/api/runs/{first['rootPlanId']}")
        third = await conversation(client, await say(client, "three"))

    assert third == [*exchanges("two"), ("user", "three")]


async def test_secrets_in_the_chat_history_are_masked(database_url: str, tmp_path: Path) -> None:
    secret = f"The token is {SECRET}."
    async with serving(database_url, tmp_path, secret, "What is it?") as client:
        await say(client, secret)
        second = await conversation(client, await say(client, "What is it?"))

    masked = "The token is [masked: github_token]."
    assert second == [*exchanges(masked), ("user", "What is it?")]


async def test_concurrent_messages_of_one_session_succeed(
    database_url: str, tmp_path: Path
) -> None:
    together = [f"message {number}." for number in range(8)]
    async with serving(database_url, tmp_path, *together, "last") as client:
        await asyncio.gather(*(say(client, each) for each in together))
        last = await conversation(client, await say(client, "last"))

    assert sorted(last[:-1]) == sorted(exchanges(*together))
    assert len(last) == 17


@pytest.mark.parametrize("user", [ALICE, BOB])
async def test_callers_with_the_same_masked_session_id_have_separate_histories(
    database_url: str, tmp_path: Path, user: str
) -> None:
    """The mask of a private key extends to the end of the text, and must not swallow the caller."""
    async with serving(database_url, tmp_path, "mine", "theirs") as client:
        body = {"session_id": "-----BEGIN PRIVATE KEY-----\nabc", "agent": "nurse"}
        await client.post("/api/v1/chat", json={**body, "message": "mine", "user_id": ALICE})
        answer = await client.post(
            "/api/v1/chat", json={**body, "message": "theirs", "user_id": user}
        )
        run = orjson.loads(answer.text.split("data: ", 2)[1].splitlines()[0])
        found = await conversation(client, run)

    expected: Sequence[tuple[str, str]] = exchanges("mine") if user == ALICE else []
    assert found == [*expected, ("user", "theirs")]
