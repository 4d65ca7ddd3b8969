"""A client that leaves a chat's stream does not stop the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import httpx2
import orjson

from tests.api.conftest import on_loopback, serving_parts
from tracer.records import Status
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools import tool
from tracer.tools.parameters import UserId

PATIENCE = 240.0
"""Seconds after which what should have happened has not."""


async def test_run_continues_after_the_chat_stream_is_closed(
    database_url: str, tmp_path: Path
) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    @tool
    async def record(user_id: UserId) -> str:
        begun.set()
        await let_go.wait()
        seen.append(user_id)
        return "recorded"

    turns = [Turn(calls=[call("record")]), Turn(calls=[call("record")]), Turn("done")]
    model = ScriptedModel([Script(turns)])
    async with (
        asyncio.timeout(PATIENCE),
        serving_parts(database_url, tmp_path, model, [record]) as parts,
        on_loopback(parts) as address,
        httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client,
    ):
        asked = {"message": "Hi", "user_id": "ann-canary", "agent": "nurse"}
        async with client.stream("POST", "/api/v1/chat", json=asked) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    root_plan_id = UUID(orjson.loads(line.removeprefix("data:"))["rootPlanId"])
                    break
            await begun.wait()
        let_go.set()
        run = await parts.reader.read_run(root_plan_id)
        while run.status is Status.RUNNING:
            await asyncio.sleep(0.01)
            run = await parts.reader.read_run(root_plan_id)

    assert run.status is Status.SUCCEEDED
    assert seen == ["ann-canary"] * 2
    model.check_used_up()
