"""Hidden values never reach models, records, logs or errors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.runtime.runs import bench, script
from tests.tools.service_bench import service
from tracer.context import ToolContext, identity
from tracer.errors import ToolError
from tracer.records.events import event_json
from tracer.records.results import STACK_CHARACTERS, result_text
from tracer.runtime import Agent, Application
from tracer.runtime.chat_model import Generation
from tracer.runtime.scripted_model import Script, ScriptedModel, call
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.tools import SessionState, Tool, tool
from tracer.tools.parameters import HIDDEN, SHORTEST_SECRET, Hidden, Secrets, TokenId, User

TOKEN = "canary-4711-token"


texts = st.text(min_size=SHORTEST_SECRET) | st.text(
    "'\"\\/ é你\n\0\ud800%+", min_size=SHORTEST_SECRET
)


@given(texts, st.text(), st.text())
def test_secret_is_redacted_from_text_json_and_repr(secret: str, before: str, after: str) -> None:
    secrets = Secrets()
    secrets.add(SecretStr(secret))
    whole = f"{before}{secret}{after}"
    said = [
        whole,
        result_text({"it": [whole]}),
        result_text(json.dumps({"it": whole})),
        result_text({"log": json.dumps({"it": whole})}),
        result_text({"log": json.dumps({"it": whole}, ensure_ascii=False)}),
        repr(whole),
        repr({"it": whole}),
        str(KeyError(whole)),
    ]
    marker = HIDDEN in f"{before}{after}{secret}"

    for each in said:
        scrubbed = secrets.scrub(each)
        assert marker or HIDDEN in scrubbed
        assert secret in before + HIDDEN + after or secret not in scrubbed


@pytest.mark.parametrize("value", ["12345", "", 5, None, b"canary", object()])
def test_values_too_common_to_be_secrets_are_not_redacted(value: object) -> None:
    secrets = Secrets()
    secrets.add(value)

    assert secrets.scrub("12345 canary 5 None") == "12345 canary 5 None"


def test_longer_secret_is_redacted_first() -> None:
    secrets = Secrets()
    for each in ("secret", "secret of mine"):
        secrets.add(each)

    assert secrets.scrub("a secret of mine, a secret") == f"a {HIDDEN}, a {HIDDEN}"


class Leaky(ToolError):
    reason = "leaky"


@tool
async def tell(token: TokenId, user: User) -> dict[str, str]:
    return {"token": token, "user": user.user_id}


@tool
def fail(token: TokenId) -> None:
    raise ValueError(f"no: {token!r}") from KeyError(token)


@tool
def refuse(token: TokenId) -> None:
    raise Leaky(f"no: {token}")


@tool
async def keep(token: TokenId, state: SessionState) -> None:
    state.set(("by", token), {"it": token})


@tool(timeout=0.01)
async def tell_late(token: TokenId) -> str:
    try:
        await asyncio.Event().wait()
    finally:
        return token  # noqa: B012 - it goes on whatever happens


async def change_arguments(next: Callable[..., Any], context: ToolContext) -> Any:
    assert context.identity is not None
    return await next({"text": context.identity.reveal()})


@tool(tool_hooks=[change_arguments])
async def echo(text: str) -> str:
    return text


@tool
async def misfit(provided: Annotated[str, Hidden(lambda: TOKEN)], state: SessionState) -> None:
    state.compare_and_set(provided, TOKEN, "x")


def broken_provider() -> str:
    raise ValueError(f"the password is {TOKEN}")


@tool
async def unprovided(it: Annotated[str, Hidden(broken_provider)]) -> None: ...


@tool(result=int)
async def mistyped(token: TokenId) -> str:
    return token


LEAKY = [tell, fail, refuse, keep, tell_late, echo, misfit, unprovided, mistyped]


@pytest.mark.parametrize("leaky", LEAKY, ids=lambda each: each.name)
async def test_secret_is_never_recorded_logged_or_sent_to_the_model(
    tmp_path: Path, leaky: Tool, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    user = User(f"user of {TOKEN}")
    async with service(tmp_path, leaky, resolve_token=lambda token_id: user) as on:
        with identity(token_id=TOKEN):
            text = {"text": "x"} if leaky is echo else {}
            outcome = await on.tools.call(leaky.name, text, thread_id="s")
        row = await on.row(outcome)

    shown = repr(outcome) + repr(row) + "".join(event_json(each).decode() for each in on.events)
    logged = caplog.text + "".join(capfd.readouterr())
    assert "canary" not in shown
    assert "canary" not in logged
    assert len(on.endings(outcome)) == 1
    endings = {
        "tell": ("succeeded", None),
        "fail": ("failed", "tool_error"),
        "refuse": ("failed", "leaky"),
        "keep": ("succeeded", None),
        "tell_late": ("failed", "timed_out"),
        "echo": ("succeeded", None),
        "misfit": ("failed", "state_conflict"),
        "unprovided": ("failed", "tool_error"),
        "mistyped": ("failed", "invalid_result"),
    }
    assert (outcome.status, outcome.reason) == endings[leaky.name]
    if leaky is echo:
        assert row["effectiveArguments"] == f'{{"text":"{HIDDEN}"}}'


async def test_truncated_error_stack_contains_no_partial_secret(tmp_path: Path) -> None:
    @tool
    async def fail_at_length(token: TokenId, padding: int) -> None:
        raise ValueError(f"{token}{'x' * padding}")

    async with service(tmp_path, fail_at_length) as on:
        for cut in range(1, len(TOKEN)):
            # The stack's last line ends with a line break.
            padding = STACK_CHARACTERS - 1 - cut
            with identity(token_id=TOKEN):
                outcome = await on.tools.call("fail_at_length", {"padding": padding})
            assert outcome.error is not None
            assert outcome.error.stack is not None
            assert not outcome.error.stack.startswith(TOKEN[-cut:])


async def test_truncated_error_message_contains_no_partial_secret(tmp_path: Path) -> None:
    @tool
    async def fail_at_length(token: TokenId, before: int) -> None:
        error = ToolError(f"{'x' * before}{token}{'y' * 1000}")
        error.max_characters = 100
        raise error

    async with service(tmp_path, fail_at_length) as on:
        for before in range(50 - len(TOKEN), 51):
            with identity(token_id=TOKEN):
                outcome = await on.tools.call("fail_at_length", {"before": before})
            assert outcome.error is not None
            assert len(outcome.error.message) < 200
            assert TOKEN[:4] not in outcome.error.message
            assert TOKEN[-4:] not in outcome.error.message


def _contents(folder: Path) -> list[bytes]:
    return [each.read_bytes() for each in folder.iterdir()]


class Listening(ScriptedModel):
    """Keeps all that it is told."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        super().__init__(scripts)
        self.heard: list[str] = []

    async def complete(self, messages: Any, tools: Any) -> Generation:
        self.heard.append(f"{messages!r} {tools!r}")
        return await super().complete(messages, tools)


async def test_token_is_absent_from_database_messages_and_output(
    database_url: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    forged = call("tell", {"token": "eve", "USER": {"userId": "eve"}})
    chosen = [call("echo", {"text": "x"}) if each is echo else call(each.name) for each in LEAKY]
    model = Listening([script("Go", [forged, *chosen], "done")])
    instructions = "Work for {user_id}, {{user_info}}: {note}, {token_id}."
    worker = Agent("worker", instructions, tools=tuple(LEAKY))
    application = Application(
        name="tests",
        agents=(worker,),
        model=model,
        token_resolver=lambda token_id: User("ann", {"name": "Ann"}),
        session_state={"note": f"remember {TOKEN}"},
    )
    async with open_pool(database_url) as pool:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        async with bench(application, writer, reader, tmp_path) as on:
            with identity(token_id=TOKEN):
                outcome = await on.launcher.run("Go", agent="worker", session_id="s")
            rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert outcome.status == "succeeded"
    assert sorted(each["forgedArguments"] for each in rows)[-1] == ["USER", "token"]
    with psycopg.connect(database_url) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, relname) FROM pg_stat_user_tables"
        ).fetchall()
        # What a tool has put into the state on purpose aside.
        kept = [
            str(connection.execute(f"SELECT t::text FROM {table} t").fetchall())
            for (table,) in tables
            if "session_state" not in table
        ]
    shown = "".join([*kept, *model.heard, caplog.text, *capfd.readouterr(), repr(outcome)])
    assert "Work for ann" in shown
    assert "canary" not in shown
    assert not any(b"canary" in content for content in _contents(tmp_path))
