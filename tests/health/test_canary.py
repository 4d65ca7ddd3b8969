"""The caller's identity appears only in the diary and as the run's user: two users run, and all
output is searched.

The users' tokens and ids are canaries: text that occurs nowhere else. The model forges ids. Tools
raise errors that contain the user's id, also in a thread. A hook raises one that contains the
token, and a tool returns both.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from api.main import ServerParts
from health.agents import diary_tools, health_application
from health.demo import REQUEST, DemonstrationModel
from health.diary import Diary
from tests.databases import stored_spans
from tests.health.listening import ListeningModel
from tests.health.serving import served
from tracer.context import ToolContext, get_token_id, identity
from tracer.logs import configure_logs, get_logger
from tracer.records import Status
from tracer.runtime import Agent
from tracer.runtime.chat_model import ChatModel, ChosenCall, Generation, Message, ToolSpec
from tracer.runtime.launcher import RunOutcome
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools import SessionState, ToolRegistry, tool
from tracer.tools.parameters import TokenId, User, UserId

USERS = {
    "tok-5f0e6b8c1d9a4e27b3c6/Ω=+é token": 'usr-91c7a2e4f05d48b6\\a"37é of Anna',
    "tok-0a4d7f3e9b2c4816d5f8/Ω=+é token": 'usr-3be8d16f7a0c4952\\b"91é of Bert',
}
BOUND_TOKEN = "tok-6b1e9a7c3d5f4820e1b7/Ω=+é bound"
BOUND_KEY = "key-2d8f5b0a6c9e4137a4c2/Ω=+é bound"
BOUND_USER = 'usr-c40e7b92d6a14f35\\b"12é of Cleo'
CANARIES = [each[:20] for each in (*USERS, *USERS.values(), BOUND_TOKEN, BOUND_KEY, BOUND_USER)]
"""The beginning of each canary, which every escaping of it leaves unchanged."""
FORGED = "somebody-else"


async def user_of(token_id: str) -> User:
    return User({**USERS, BOUND_TOKEN: BOUND_USER}[token_id], {"phone": "0123"})


log = get_logger("tests.canary")


@tool
async def break_down(user_id: UserId, token_id: TokenId, detail: dict[str, Any]) -> None:
    """Break."""
    try:
        raise LookupError(f"no row for {token_id!r}")
    except LookupError as error:
        log.exception("tool_breaks", reason="it has to")
        raise RuntimeError(f"user {user_id} ({json.dumps(user_id)}) of {detail}") from error


@tool
async def give_away(user: User, token_id: TokenId, context: ToolContext) -> dict[str, Any]:
    """Give away."""
    who = context.identity.reveal() if context.identity else None
    return {"user": user.user_id, "token": token_id, "who": who, "list": [repr(user.user_id)]}


@tool
async def remember(user_id: UserId, state: SessionState) -> None:
    """Remember."""
    state.append("lengths", len(user_id))


@tool
def break_in_a_thread(user_id: UserId, limit: int) -> None:
    """Break."""
    raise ValueError(user_id)


@tool
async def give_away_in_parts(fail: bool) -> AsyncIterator[Any]:
    """Give away what `get_token_id` returns, and fail."""
    log.info("tool_yields", reason="it has to")
    for token_id in (get_token_id(), await asyncio.to_thread(get_token_id)):
        yield {"value": token_id}
        yield f"the token {token_id!r}"
    if fail:
        raise RuntimeError(get_token_id())


@tool
def give_away_bound(key: str, user_id: UserId, token_id: TokenId) -> list[Any]:
    """Give away bound values, and the caller."""
    log.info("tool_is_bound", reason="it has to")
    return [key, user_id, token_id, get_token_id()]


BOUND = give_away_bound.bind(key=BOUND_KEY, token_id=BOUND_TOKEN)


async def loud_hook(next: Any, arguments: Mapping[str, Any], context: ToolContext) -> Any:
    if context.identity is not None and arguments.get("limit") == 1:
        raise PermissionError(f"{context.identity.reveal()} may not")
    return await next(dict(arguments))


TOOLS = (break_down, give_away, remember, break_in_a_thread, give_away_in_parts, BOUND)

GIVING_AWAY = [
    call("break_down", {"detail": {"userId": FORGED, "rows": [{"USER-ID": FORGED, "at": 1}]}}),
    call("break_down", {"detail": "not an object", "user_id": FORGED}),
    call("give_away", {"User": FORGED, "TokenId": FORGED}),
    call("remember"),
    call("break_in_a_thread", {"limit": 5}),
    call("break_in_a_thread", {"limit": 1}),
    call("give_away_in_parts", {"fail": False}),
    call("give_away_in_parts", {"fail": True}),
    call("give_away_bound", {"key": FORGED, "token-id": FORGED}),
    call("query_symptom", {"limit": 20, "where": {"user_id": FORGED}}),
]


class ForgingModel:
    """Answers like another model, and adds forged user ids to each call of a diary tool."""

    def __init__(self, model: ChatModel) -> None:
        self.name = model.name
        self._model = model

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        answer = await self._model.complete(messages, tools)
        return replace(answer, tool_calls=[*map(_forged, answer.tool_calls)])


def _forged(chosen: ChosenCall) -> ChosenCall:
    if not chosen.name.startswith(("record_", "query_")):
        return chosen
    names = ("user_id", "userId", "USER-ID", "patient_id")
    arguments = {**json.loads(chosen.arguments), **dict.fromkeys(names, FORGED)}
    return replace(chosen, arguments=json.dumps(arguments))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged, at level DEBUG."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = []
    stream = io.StringIO()
    configure_logs("DEBUG", stream)
    yield stream
    root.setLevel(level)
    root.handlers[:] = handlers


async def run_both(made: ServerParts, request: str, **options: Any) -> list[RunOutcome]:
    """Run a request for both users at once, each in a session of their own."""

    async def run_one(number: int, token_id: str) -> RunOutcome:
        with identity(token_id=token_id):
            return await (await made.opened_launcher()).run(
                request, session_id=f"s-{number}", **options
            )

    return await asyncio.gather(*(run_one(*each) for each in enumerate(USERS)))


_ROW = "row::text || row_to_json(row)::text"
_WITHOUT_USER = "(to_jsonb(row) - 'subject')::text"


async def everything_stored(database_url: str) -> dict[str, str]:
    """Return the rows of each table as text, without the diary and the users of the runs.

    Blocks of spans are unpacked.
    """
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        found = await connection.execute(
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('health', 'pg_catalog', 'information_schema')"
        )
        texts = {}
        for names in await found.fetchall():
            query = sql.SQL("SELECT {} FROM {} row")
            columns = sql.SQL(_WITHOUT_USER if names[1] == "run" else _ROW)
            rows = await connection.execute(query.format(columns, sql.Identifier(*names)))
            texts[names[1]] = "\n".join(text for (text,) in await rows.fetchall())
    texts["otel_block"] += stored_spans(database_url).decode("latin-1")
    return texts


def spooled(home: Path) -> str:
    """Return the contents of the recorder's spool files."""
    return "".join(each.read_bytes().decode(errors="replace") for each in home.rglob("*.sqlite3*"))


async def fetch(database_url: str, query: str) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        return await (await connection.execute(query.encode())).fetchall()


async def test_user_id_of_the_caller_is_stored_only_in_the_diary_and_as_the_user_of_the_run(
    database_url: str, tmp_path: Path, logged: io.StringIO
) -> None:
    scripted = ScriptedModel(
        [Script([Turn(calls=GIVING_AWAY), Turn(text="done")], agent="traitor", times=2)]
    )
    traitor = ListeningModel(ForgingModel(scripted))
    model = ListeningModel(ForgingModel(DemonstrationModel()))
    application = health_application(Diary())
    tools = (*TOOLS, "query_symptom")
    application = replace(
        application,
        model=model,
        token_resolver=user_of,
        agents=(
            *application.agents,
            Agent("traitor", "Speak of {lengths}.", tools, model=traitor, tool_hooks=[loud_hook]),
        ),
    )

    async with served(database_url, tmp_path, application) as made:
        outcomes = await run_both(made, "Speak", agent="traitor")
        outcomes += await run_both(made, REQUEST)  # which also lists the previous runs

    stored = await everything_stored(database_url)
    searched = {
        **stored,
        "logs": logged.getvalue(),
        "model": "\n".join([*model.heard, *traitor.heard]),
        "outcomes": repr(outcomes),
        "spool": spooled(tmp_path),
    }
    assert [each.status for each in outcomes] == [Status.SUCCEEDED] * 4
    assert {"act_tool_info", "session_state", "run", "think_act_record"} <= stored.keys()
    # No spans arrived, no run continues another, and this server has no keys and no prices. A
    # spool is made only if the database is slow, and roll-ups if the test lasts for a minute.
    rolled_up = {"run_group", "tool_hour", "run_part_of_day", "run_day"}
    empty = {name for name, text in searched.items() if not text} - {"spool", *rolled_up}
    assert empty == {
        *("analyst", "api_key", "model_price", "sign_in"),
        *(
            "otel_block",
            "otel_session",
            "pending_run",
            "removed_record",
            "run_link",
            "conversation",
        ),
    }
    found = [
        f"{name}: {text[max(0, at - 200) : at + 100]}"
        for name, text in searched.items()
        for canary in CANARIES
        if (at := text.find(canary)) >= 0
    ]
    assert found == []
    subjects = await fetch(database_url, "SELECT subject, count(*) FROM run GROUP BY 1 ORDER BY 1")
    assert sorted(subjects) == sorted((each, 2) for each in USERS.values())
    # The canaries were in the output, and were replaced.
    assert searched["act_tool_info"].count("[hidden]") > 8
    assert "tool_breaks" in searched["logs"]
    for name in ("give_away_in_parts", "give_away_bound"):
        query = f"SELECT result FROM act_tool_info WHERE name = '{name}'"
        results = [text for (text,) in await fetch(database_url, query)]
        assert all(text.count("[hidden]") == 4 for text in results), results

    # The tools served both users, and not the user whom the model named.
    query = "SELECT user_id, count(*) FROM health.medication GROUP BY 1 ORDER BY 1"
    assert sorted(await fetch(database_url, query)) == sorted((each, 3) for each in USERS.values())


async def test_names_of_forged_arguments_are_recorded_on_the_call(
    database_url: str, tmp_path: Path
) -> None:
    scripted = ScriptedModel([Script([Turn(calls=GIVING_AWAY), Turn(text="done")], times=2)])
    tools = (*TOOLS, "query_symptom")
    diary = Diary()
    application = replace(
        health_application(diary),
        token_resolver=user_of,
        registry=ToolRegistry(diary_tools(diary)),  # without the process of an MCP server
        agents=(Agent("traitor", "", tools, model=ForgingModel(scripted)),),
        default_agent="traitor",
    )

    async with served(database_url, tmp_path, application) as made:
        await run_both(made, "Speak", agent="traitor")

    found = await fetch(
        database_url,
        "SELECT DISTINCT position, name, coalesce(forged_arguments, '{}'), reason"
        " FROM act_tool_info ORDER BY 1",
    )
    assert [row[1:] for row in found] == [
        ("break_down", [], "tool_error"),
        ("break_down", ["user_id"], "invalid_arguments"),
        ("give_away", ["TokenId", "User"], None),
        ("remember", [], None),
        ("break_in_a_thread", [], "tool_error"),
        ("break_in_a_thread", [], "tool_error"),
        ("give_away_in_parts", [], None),
        ("give_away_in_parts", [], "tool_error"),
        ("give_away_bound", ["key", "token-id"], None),
        (
            "query_symptom",
            ["USER-ID", "patient_id", "userId", "user_id"],
            "invalid_arguments",
        ),
    ]
