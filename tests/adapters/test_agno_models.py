"""Agno: finish reasons and the time of the first token, with models of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from openai import AsyncOpenAI

from tests.adapters.installed import installed
from tests.adapters.recording import RecordedStore, tree_of
from tests.recordings import round_of
from tests.runtime.chat_server import ChatServer, Fault, serving
from tracer.adapters import agno
from tracer.records.record_classes import ThinkActRecord
from tracer.runtime.chat_model import ChosenCall
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    with installed(agno.install, tmp_path) as store:
        yield store
    assert agno.open_plans() == []


def opening() -> str:
    """Open the door."""
    return "open"


def _agent(client: AsyncOpenAI) -> Agent:
    model = OpenAIChat("gpt-5-mini", async_client=client)
    return Agent(name="porter", model=model, tools=[opening])


@asynccontextmanager
async def _client_of(server: ChatServer) -> AsyncIterator[AsyncOpenAI]:
    with serving(server):
        async with AsyncOpenAI(base_url=server.base_url, api_key="none") as client:
            yield client


async def _rounds(store: RecordedStore) -> list[ThinkActRecord]:
    tree = await tree_of(store)
    rounds = tree["agentExecutions"][0]["thinkActs"]
    return [round_of(store, UUID(each["thinkActId"])) for each in rounds]


async def test_rounds_record_why_the_model_stopped(store: RecordedStore) -> None:
    turns = [Turn(calls=[ChosenCall("opening", "{}", "x")]), Turn("Come in.")]
    async with _client_of(ChatServer(ScriptedModel([Script(turns)]))) as client:
        await _agent(client).arun("Is it open?")

    rounds = await _rounds(store)
    assert [each.finish_reasons for each in rounds] == [["tool_calls"], ["stop"]]
    assert [each.first_token_at for each in rounds] == [None, None], "nothing was streamed"


async def test_streamed_round_records_its_first_token_and_why_the_model_stopped(
    store: RecordedStore,
) -> None:
    parts = [_part({"role": "assistant", "content": "Come"}), _part({"content": " in"}, "length")]
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in parts) + "data: [DONE]\n\n"
    streamed = Fault(200, body.encode(), {"Content-Type": "text/event-stream"})
    async with _client_of(ChatServer(ScriptedModel([]), streamed)) as client:
        async for _ in _agent(client).arun("Is it open?", stream=True):
            pass

    [round] = await _rounds(store)
    assert (round.thought, round.finish_reasons) == ("Come in", ["length"])
    assert round.started_at is not None
    assert round.first_token_at is not None
    assert round.started_at <= round.first_token_at


def _part(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-5-mini",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
