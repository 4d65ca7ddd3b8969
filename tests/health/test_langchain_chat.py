"""A LangChain agent with twelve tools answers several chat messages of one session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import psycopg

from api.app import create_app
from api.main import server_parts
from health.diary import Diary
from tests.health.langchain_tools import langchain_tools
from tests.health.listening import ListeningModel
from tracer.adapters.langchain import from_langchain
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.settings import read_settings
from tracer.tools import ToolRegistry
from tracer.tools.parameters import TokenId

USER, SESSION = "user123-canary", "session456"
FIRST, SECOND, THIRD = "记录血压120/80", "刚才又量了一次，130/85，也记下来", "哪一次更高？"


def reading(systolic: int, diastolic: int) -> dict[str, Any]:
    """Return what the model gives the tool, a token of its own included."""
    return {"systolic": systolic, "diastolic": diastolic, "token_id": "mallory"}


SCRIPTS = [
    Script(
        [Turn(calls=[call("record_blood_pressure", reading(120, 80))]), Turn("已记录120/80。")],
        request=FIRST,
    ),
    Script(
        [Turn(calls=[call("record_blood_pressure", reading(130, 85))]), Turn("已记录130/85。")],
        request=SECOND,
    ),
    Script([Turn(calls=[call("query_blood_pressure")]), Turn("第二次更高。")], request=THIRD),
]


@asynccontextmanager
async def serving(
    database_url: str, home: Path, model: ListeningModel
) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the agent with the twelve tools, and give a client of the API."""
    diary = Diary()
    tools = [from_langchain(each, hidden={"token_id": TokenId}) for each in langchain_tools(diary)]
    agent = Agent("nurse", "Answer.", tools=tuple(each.name for each in tools))
    application = Application(
        name="health",
        agents=(agent,),
        model=model,
        registry=ToolRegistry(tools),
        resources=diary.open,
    )
    async with server_parts(read_settings(home=home), database_url, application) as made:
        await made.opened_launcher()
        transport = httpx2.ASGITransport(create_app(made))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client


async def say(client: httpx2.AsyncClient, message: str) -> str:
    """Send a message of the session and return the id of its run."""
    body = {"message": message, "user_id": USER, "session_id": SESSION, "agent": "nurse"}
    answer = await client.post("/api/v1/chat", json=body)
    assert answer.status_code == 200, answer.text
    *_, last = answer.text.strip().split("\n\n")
    ending = orjson.loads(last.split("data: ", 1)[1])
    assert ending["status"] == "succeeded", ending
    assert USER not in answer.text
    return str(ending["rootPlanId"])


def heard_messages(heard: str) -> Sequence[tuple[str, str]]:
    """Return what a model was given in one call, without the system message."""
    _, *rest = json.loads(heard)["messages"]
    return [(each["role"], each["content"]) for each in rest]


async def test_chat_history_of_three_messages_survives_a_restart(
    database_url: str, tmp_path: Path
) -> None:
    scripted = ScriptedModel(SCRIPTS)
    before, after = ListeningModel(scripted), ListeningModel(scripted)
    async with serving(database_url, tmp_path, before) as client:
        runs = [await say(client, FIRST), await say(client, SECOND)]
    async with serving(database_url, tmp_path, after) as client:
        runs.append(await say(client, THIRD))
        listed = (await client.get("/api/runs", params={"session": SESSION})).json()
        calls = (await client.get("/api/tool-calls")).json()["items"]
    scripted.check_used_up()

    history = [
        ("user", FIRST),
        ("assistant", "已记录120/80。"),
        ("user", SECOND),
        ("assistant", "已记录130/85。"),
    ]
    assert heard_messages(before.heard[0]) == [("user", FIRST)]
    assert heard_messages(before.heard[2]) == [*history[:2], ("user", SECOND)]
    assert heard_messages(after.heard[0]) == [*history, ("user", THIRD)]

    role, result = heard_messages(after.heard[1])[-1]
    assert role == "tool"
    assert [(each["systolic"], each["diastolic"]) for each in json.loads(result)] == [
        (130, 85),
        (120, 80),
    ]
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        found = await connection.execute(
            "SELECT user_id, systolic FROM health.blood_pressure ORDER BY systolic"
        )
        assert await found.fetchall() == [(USER, 120), (USER, 130)]

    for heard in (*before.heard, *after.heard):
        offered = json.loads(heard)["tools"]
        assert len(offered) == 12
        assert not any("token_id" in each["parameters"]["properties"] for each in offered)
        assert USER not in heard
    assert [each["forgedArguments"] for each in calls] == [[], ["token_id"], ["token_id"]]
    assert USER not in repr(calls)

    assert [each["rootPlanId"] for each in listed["items"]] == runs[::-1]
    assert {each["sessionId"] for each in listed["items"]} == {SESSION}
