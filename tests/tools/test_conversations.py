"""Callers never share a conversation, even with the same session id."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import nullcontext
from contextvars import Context
from pathlib import Path

import pytest

from tests.tools.service_bench import Service, service
from tracer.context import identity
from tracer.tools import SessionState, Tool, tool
from tracer.tools.functions import stateful_tool

# Too short to be taken out of results: these tests look at them.
ANN, BERT = "A1", "B2"


class Notebook:
    """Keeps words, and notes when it is closed."""

    def __init__(self, closed: list[list[str]]) -> None:
        self.words: list[str] = []
        self._closed = closed

    async def execute(self, word: str) -> list[str]:
        """Write a word down."""
        self.words.append(word)
        return self.words

    async def aclose(self) -> None:
        self._closed.append(self.words)


def notebook(closed: list[list[str]]) -> Tool:
    parameters = {"type": "object", "properties": {"word": {"type": "string"}}}
    return stateful_tool(name="note", create=lambda: Notebook(closed), parameters=parameters)


@tool
async def keep(state: SessionState, word: str) -> list[str]:
    """Keep a word."""
    state.append("words", word)
    return list(state["words"])


async def said(on: Service, tool_name: str, who: str | None, session: str, word: str) -> str:
    """Return what a tool knows once a caller has said a word in a session."""
    with nullcontext() if who is None else identity(token_id=who):
        outcome = await on.tools.call(tool_name, {"word": word}, thread_id=session)
    assert outcome.error is None
    return outcome.result or ""


def digest(who: str) -> str:
    return hashlib.sha256(who.encode()).hexdigest()[:16]


@pytest.mark.parametrize("tool_name", ["note", "keep"])
async def test_two_callers_with_the_same_session_id_have_separate_conversations(
    tmp_path: Path, tool_name: str
) -> None:
    callers = [ANN, BERT, None]
    async with service(tmp_path, notebook([]), keep) as on:
        first = [await said(on, tool_name, who, "s", f"{who} 1") for who in callers]
        second = [await said(on, tool_name, who, "s", f"{who} 2") for who in callers]

    assert first == [f'["{who} 1"]' for who in callers]
    assert second == [f'["{who} 1","{who} 2"]' for who in callers]


@pytest.mark.parametrize("tool_name", ["note", "keep"])
@pytest.mark.parametrize("who", [None, BERT])
async def test_no_session_id_opens_the_conversation_of_another_caller(
    tmp_path: Path, tool_name: str, who: str | None
) -> None:
    guesses = [f"s@{digest(ANN)}", f"s@{digest(ANN)}@", "s@", f"s@{digest(BERT)}", "s"]
    async with service(tmp_path, notebook([]), keep) as on:
        await said(on, tool_name, ANN, "s", "private")
        found = [await said(on, tool_name, who, guess, "mine") for guess in guesses]

    assert found == ['["mine"]'] * len(guesses)


@pytest.mark.parametrize("who", [None, BERT])
async def test_run_id_used_as_session_id_does_not_open_the_conversation_of_that_run(
    tmp_path: Path, who: str | None
) -> None:
    closed: list[list[str]] = []
    async with service(tmp_path, notebook(closed)) as on:
        with identity(token_id=ANN):
            async with on.tools.run("Private") as context:
                await on.tools.call("note", {"word": "private"})
                elsewhere = said(on, "note", who, str(context.root_plan_id), "mine")
                found = await asyncio.create_task(elsewhere, context=Context())

    assert found == '["mine"]'
    assert sorted(closed) == [["mine"], ["private"]]


async def test_ending_a_conversation_keeps_the_one_of_another_caller(tmp_path: Path) -> None:
    closed: list[list[str]] = []
    async with service(tmp_path, notebook(closed)) as on:
        for who in (ANN, BERT, None):
            await said(on, "note", who, "s", str(who))
        await on.tools.end_thread("s")
        assert closed == [["None"]]
        with identity(token_id=ANN):
            await on.tools.end_thread("s")
        assert closed == [["None"], [ANN]]
        again = await said(on, "note", ANN, "s", "new")
        still = await said(on, "note", BERT, "s", "more")

    assert again == '["new"]'
    assert still == f'["{BERT}","more"]'
    assert len(closed) == 4
