"""Each call gets the identity of its own caller."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import application, bench, script
from tests.tools.callers import ALL, A, B, check, resolve
from tests.tools.service_bench import Service, service
from tracer.context import Identity, current_identity, identity
from tracer.errors import MissingIdentity
from tracer.recorder import Recorder, Spool
from tracer.records import new_id
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import (
    ActiveRun,
    CallOutcome,
    RunParameters,
    SessionState,
    ToolRegistry,
    ToolResources,
    tool,
)
from tracer.tools.parameters import User, UserId
from tracer.tools.run import conversation_of


async def test_call_that_requires_a_caller_runs_no_hook_provider_or_tool_without_one(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def hook(next: Callable[..., Any], arguments: Any) -> Any:
        asked.append("hook")
        return await next(arguments)

    @tool(tool_hooks=[hook])
    async def secret(user_id: UserId | None) -> None:
        asked.append("tool")

    def resolve_token(token_id: str) -> str:
        asked.append("resolver")
        return token_id

    async with service(tmp_path, secret, resolve_token=resolve_token) as on:
        outcome = await on.tools.call("secret")

    assert (outcome.status, outcome.reason) == ("failed", "missing_identity")
    assert "with identity(…)" in outcome.for_model
    assert asked == []
    assert len(on.endings(outcome)) == 1


def test_empty_token_is_rejected() -> None:
    with pytest.raises(ValueError, match="empty"), identity(token_id=""):
        pass


async def test_tasks_lose_the_identity_when_their_block_ends(tmp_path: Path) -> None:
    let_go = asyncio.Event()

    async def later(on: Service) -> CallOutcome:
        await let_go.wait()
        assert current_identity() is None
        return await on.tools.call("whoami", {"asked": "later"})

    async with service(tmp_path, *ALL, resolve_token=resolve) as on:
        with identity(token_id=A) as who:
            task = asyncio.create_task(later(on))
        let_go.set()
        outcome = await task

    assert who.is_over
    check(outcome, None, "later")


async def test_inner_identity_block_takes_precedence(tmp_path: Path) -> None:
    async with service(tmp_path, *ALL, resolve_token=resolve) as on:
        with identity(token_id=A):
            with identity(token_id=B):
                inner = await on.tools.call("whoami", {"asked": "inner"})
            outer = await on.tools.call("whoami", {"asked": "outer"})

    check(inner, B, "inner")
    check(outer, A, "outer")


async def test_call_by_another_caller_within_a_run_is_a_separate_run(tmp_path: Path) -> None:
    async with service(tmp_path, *ALL, resolve_token=resolve) as on:
        with identity(token_id=A):
            async with on.tools.run("A's") as context:
                mine = await on.tools.call("whoami", {"asked": "mine"})
                with identity(token_id=B):
                    other = await on.tools.call("whoami", {"asked": "other"})

    check(mine, A, "mine")
    check(other, B, "other")
    assert mine.root_plan_id == context.root_plan_id
    assert other.root_plan_id != context.root_plan_id


async def test_run_has_its_caller_until_it_ends(tmp_path: Path) -> None:
    begun = asyncio.Event()
    scope_is_over = asyncio.Event()

    async def whole_run(on: Service) -> list[CallOutcome]:
        async with on.tools.run("A's"):
            begun.set()
            await scope_is_over.wait()
            during = await on.tools.call("whoami", {"asked": "during"})
            late = contextvars.copy_context()
        calling = on.tools.call("whoami", {"asked": "after"})
        return [during, await late.run(asyncio.create_task, calling)]

    async with service(tmp_path, *ALL, resolve_token=resolve) as on:
        with identity(token_id=A):
            running = asyncio.create_task(whole_run(on))
            await begun.wait()
        scope_is_over.set()
        during, after = await running

    check(during, A, "during")
    check(after, None, "after")
    assert during.root_plan_id != after.root_plan_id


async def test_ended_identity_block_starts_no_run(tmp_path: Path) -> None:
    with identity(token_id=A) as who:
        pass
    async with Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder:
        scope = ActiveRun(recorder, ToolResources(), new_id, RunParameters(identity=who))
        with pytest.raises(MissingIdentity, match="has ended"):
            await scope.user()


# --- The resolver ------------------------------------------------------------------------------


async def resolve_async(token_id: str) -> User:
    await asyncio.sleep(0)
    return User(f"of {token_id}")


@pytest.mark.parametrize(
    "resolver", [resolve, resolve_async, lambda token_id: User(f"of {token_id}")]
)
async def test_token_is_looked_up_once_per_run(
    tmp_path: Path, resolver: Callable[[str], Any]
) -> None:
    asked: list[str] = []

    def counted(token_id: str) -> Any:
        asked.append(token_id)
        return resolver(token_id)

    async with service(tmp_path, *ALL, resolve_token=counted) as on:
        with identity(token_id=A):
            async with on.tools.run("Twenty"):
                outcomes = await asyncio.gather(
                    *(on.tools.call("whoami", {"asked": str(n)}) for n in range(20))
                )
            await on.tools.call("whoami", {"asked": "another run"})

    for number, outcome in enumerate(outcomes):
        check(outcome, A, str(number))
    assert asked == [A, A]


def raise_token(token_id: str) -> str:
    raise ValueError(f"no user for the token {token_id}, password of the directory: canary")


async def raise_token_async(token_id: str) -> str:
    raise_token(token_id)
    return ""


@pytest.mark.parametrize(
    ("resolver", "reason", "message"),
    [
        (lambda token_id: None, "missing_identity", "belongs to no user"),
        (lambda token_id: "", "missing_identity", "belongs to no user"),
        (lambda token_id: User(""), "missing_identity", "belongs to no user"),
        (raise_token, "identity_unavailable", "failed with ValueError. Try again later"),
        (raise_token_async, "identity_unavailable", "failed with ValueError. Try again later"),
    ],
)
async def test_unknown_token_and_failing_resolver_have_different_reasons(
    tmp_path: Path,
    resolver: Callable[[str], Any],
    reason: str,
    message: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with service(tmp_path, *ALL, resolve_token=resolver) as on:
        with identity(token_id="token-zyx"):
            outcome = await on.tools.call("whoami", {"asked": "x"})
        row = await on.row(outcome)

    assert outcome.reason == reason
    assert message in outcome.for_model
    is_failure = reason == "identity_unavailable"
    assert ("in raise_token" in caplog.text) == is_failure  # the traceback
    shown = repr(outcome) + repr(row) + repr(on.events) + caplog.text + "".join(capfd.readouterr())
    assert "zyx" not in shown
    assert "canary" not in shown


async def test_next_call_retries_a_failed_token_lookup(tmp_path: Path) -> None:
    answers: list[str | None] = [None, "ann"]

    async with service(tmp_path, *ALL, resolve_token=lambda token_id: answers.pop(0)) as on:
        with identity(token_id=A):
            async with on.tools.run("Twice"):
                first = await on.tools.call("whoami", {"asked": "first"})
                second = await on.tools.call("whoami", {"asked": "second"})

    assert (first.reason, second.reason) == ("missing_identity", None)


async def test_cancelled_first_lookup_does_not_fail_the_others(
    tmp_path: Path,
) -> None:
    asked = asyncio.Event()
    let_go = asyncio.Event()
    lookups: list[str] = []

    async def slow(token_id: str) -> str:
        lookups.append(token_id)
        asked.set()
        await let_go.wait()
        return resolve(token_id)

    async with service(tmp_path, *ALL, resolve_token=slow) as on:
        with identity(token_id=A):
            async with on.tools.run("Two"):
                first = asyncio.create_task(on.tools.call("whoami", {"asked": "first"}))
                await asked.wait()
                second = asyncio.create_task(on.tools.call("whoami", {"asked": "second"}))
                first.cancel()
                await asyncio.wait({first})
                let_go.set()
                outcome = await second

    check(outcome, A, "second")
    assert lookups == [A]


async def test_resolver_error_does_not_contain_the_token(tmp_path: Path) -> None:
    def expired(token_id: str) -> str:
        raise MissingIdentity(f"The token {token_id} has expired.") from KeyError(token_id)

    @tool
    async def read(state: SessionState) -> int:
        return len(state)

    async with service(tmp_path, read, resolve_token=expired) as on:
        with identity(token_id="token-zyx"):
            outcome = await on.tools.call("read", thread_id="s")

    assert outcome.reason == "missing_identity"
    assert "has expired" in outcome.for_model
    assert "zyx" not in repr(outcome) + repr(on.events)


async def test_internal_key_of_a_conversation_used_as_session_id_does_not_open_it(
    tmp_path: Path,
) -> None:
    @tool
    async def write(state: SessionState) -> None:
        state.set("note", "private")

    @tool
    async def read(state: SessionState) -> int:
        return len(state)

    async with service(tmp_path, write, read) as on:
        with identity(token_id=A):
            await on.tools.call("write", thread_id="s")
        outcome = await on.tools.call("read", thread_id=conversation_of("s", User(A)))

    assert outcome.result == "0"


async def test_run_started_by_a_tool_has_its_own_caller(
    tmp_path: Path,
) -> None:
    @tool
    async def ask(asked: str) -> str:
        return (await on.launcher.tools.call("whoami", {"asked": asked}, thread_id="x")).for_model

    tools = [ask, *ALL]
    model = ScriptedModel([script("Ask", [call("ask", {"asked": "x"})], "done")])
    app = application(model, tools, registry=ToolRegistry(tools), token_resolver=resolve)
    store = recording_in_memory()
    async with bench(app, store, store, tmp_path) as on:
        with identity(token_id=B):
            run = await on.launcher.run("Ask", agent="worker", identity=Identity(A))
        [asked] = (await on.rows(run.root_plan_id)).tool_calls

    assert asked["result"] == f'["of {A}","{A}","x"]'
