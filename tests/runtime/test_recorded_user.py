"""The user of a run that our runtime records: the resolver's user id, and never the token."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.recordings import run_of
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import application, everything, script
from tracer.context import identity
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.memory import RecordingInMemory
from tracer.tools.parameters import User

TOKEN = "tok-5f0e6b8c1d9a"


async def find_user(token_id: str) -> User:
    return User("u-1", {"name": "Ann"})


def find_nobody(token_id: str) -> None:
    return None


def find_no_database(token_id: str) -> str:
    raise ConnectionError(token_id)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"record_user": True}, TOKEN),
        ({"token_resolver": find_user}, "u-1"),
        ({"token_resolver": lambda token_id: token_id}, None),
        ({"token_resolver": lambda token_id: f"user:{token_id}"}, None),
        ({"token_resolver": find_nobody}, None),
        ({"token_resolver": find_no_database}, None),
    ],
    ids=["default", "asked for", "user", "token", "contains the token", "nobody", "fails"],
)
async def test_run_records_its_user_unless_the_user_id_is_the_token(
    options: dict[str, Any], expected: str | None, open_bench: OpenBench, store: RecordingInMemory
) -> None:
    model = ScriptedModel([script("Hello", "Hello.")])
    on = await open_bench(application(model, **options))

    with identity(token_id=TOKEN):
        outcome = await on.launcher.run("Hello", agent="worker")

    run = run_of(store, outcome.root_plan_id)
    assert (outcome.status, run.subject) == ("succeeded", expected)
    records = repr(everything(await on.rows(outcome.root_plan_id)))
    assert TOKEN not in records + (repr(run) if expected != TOKEN else "")


async def test_user_that_the_caller_of_the_launcher_names_is_recorded(
    open_bench: OpenBench, store: RecordingInMemory
) -> None:
    model = ScriptedModel([script("Hello", "Hello.")])
    on = await open_bench(application(model, token_resolver=find_user))

    with identity(token_id=TOKEN):
        outcome = await on.launcher.run("Hello", agent="worker", subject="p-1")

    assert run_of(store, outcome.root_plan_id).subject == "p-1"


async def test_run_is_recorded_before_its_user_is_found(
    open_bench: OpenBench, store: RecordingInMemory
) -> None:
    may_answer = asyncio.Event()

    async def find_late(token_id: str) -> str:
        await may_answer.wait()
        return "u-1"

    model = ScriptedModel([script("Hello", "Hello.")])
    on = await open_bench(application(model, token_resolver=find_late))
    recorded = asyncio.Event()
    with identity(token_id=TOKEN):
        run = on.launcher.run("Hello", agent="worker", observe=lambda _: recorded.set())
        running = asyncio.create_task(run)
        await recorded.wait()
    [root_plan_id] = on.launcher.active_runs
    before = run_of(store, root_plan_id)
    may_answer.set()
    await running
    after = run_of(store, root_plan_id)

    assert (before.status, before.subject) == ("running", None)
    assert (after.status, after.subject) == ("succeeded", "u-1")
