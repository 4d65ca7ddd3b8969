"""Hidden parameters work for every kind of tool and every way to register it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from tests.recordings import messages_of
from tests.runtime.runs import bench
from tests.tools.http_servers import HttpServer, Received, http_server, reply
from tests.tools.mcp_servers import live_server
from tests.tools.service_bench import Service, postgres_service, service
from tests.tools.short_times import PATIENCE
from tests.tools.tables import not_rejected
from tracer.adapters.langchain import from_langchain
from tracer.context import current_identity, identity, in_context
from tracer.errors import InvalidArguments, RegistrationError
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import Tool, ToolService, tool
from tracer.tools.call import batch_tool
from tracer.tools.config import read_tools
from tracer.tools.functions import stateful_tool, stateless_tool
from tracer.tools.mcp import McpServer
from tracer.tools.parameters import TokenId, UserId
from tracer.tools.rest import BearerAuth, RestConfig, rest_tool

SCHEMA = {
    "type": "object",
    "properties": {"asked": {"type": "string"}, "token_id": {"type": "string"}},
    "required": ["asked", "token_id"],
}
HIDE = {"token_id": TokenId}


def token_visible(asked: str, token_id: str) -> list[str]:
    """Return the arguments, in the form of seed 001: the token is an ordinary parameter."""
    return [asked, token_id]


async def token_by_type(asked: str, token_id: TokenId) -> list[str]:
    """Return the arguments."""
    await asyncio.sleep(0)
    return [asked, token_id]


class Keeping:
    """Returns the arguments of a conversation's calls."""

    def execute(self, asked: str, token_id: str) -> list[str]:
        """Return the arguments."""
        return [asked, token_id]


def of_schema(**options: Any) -> Tool:
    return stateless_tool(
        name="of_schema",
        description="Returns the arguments.",
        parameters=SCHEMA,
        execute=lambda params: [params["asked"], params["token_id"]],
        **options,
    )


def of_langchain(schema: Any, name: str, **options: Any) -> Tool:
    theirs = StructuredTool.from_function(
        token_visible, name=name, description="Returns the arguments.", args_schema=schema
    )
    return from_langchain(theirs, **options)


async def asked_hook(next: Callable[..., Any], arguments: Any, token_id: TokenId) -> Any:
    """Answer with the token that the hook received, beside the tool's result."""
    return [token_id, await next(arguments)]


def asked_hook_in_thread(next: Callable[..., Any], arguments: Any, token_id: TokenId) -> Any:
    return [token_id, next(arguments)]


@dataclass(frozen=True)
class Kinds:
    """A tool of every kind, whose result has the caller's token, and the servers that they call."""

    tools: list[Tool]
    mcp: McpServer
    api: HttpServer


def answer(request: Received) -> bytes:
    return reply(
        json=[*(value for _, value in request.query), request.headers.get("authorization")]
    )


@asynccontextmanager
async def every_kind(tmp_path: Path) -> AsyncIterator[Kinds]:
    async with http_server(answer) as api, live_server(tmp_path, "http") as live:
        (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
        (tmp_path / "tools.toml").write_text(
            f"""
[tools.rest_of_file]
type = "REST"
description = "Returns the arguments."
hidden = {{ token_id = "token" }}
parameters = "schema.json"
config = {{ base_url = "{api.url}", allowed_hosts = ["{api.host}"] }}

[tools.function_of_file]
type = "STATELESS"
hidden = {{ token_id = "token" }}
"""
        )
        of_file = read_tools(tmp_path / "tools.toml", functions={"function_of_file": token_visible})
        bearer = rest_tool(
            name="rest_bearer",
            description="Returns the arguments and the header.",
            parameters={"type": "object", "properties": {"asked": {"type": "string"}}},
            config=RestConfig(
                base_url=api.url,
                allowed_hosts=frozenset({api.host}),
                auth=BearerAuth(secret="caller:token"),
            ),
        )
        tools = [
            *of_file,
            bearer,
            tool(token_by_type),
            tool(name="by_option", hidden=HIDE)(token_visible),
            of_schema(hidden=HIDE),
            stateful_tool(name="stateful", create=Keeping, hidden=HIDE),
            stateful_tool(
                name="stateful_of_schema",
                create=lambda: Keeping(),
                parameters=SCHEMA,
                hidden=HIDE,
            ),
            of_langchain(SCHEMA, "langchain_of_schema", hidden=HIDE),
            of_langchain(None, "langchain_of_model", hidden=HIDE),
            tool(name="hooked", hidden=HIDE, tool_hooks=[asked_hook, asked_hook_in_thread])(
                token_visible
            ),
        ]
        tools.append(batch_tool(tools[1], name="batch"))
        yield Kinds(tools, McpServer(live.config(tools=["whoami"], hidden=HIDE)), api)


def forging(tool_name: str, asked: str, forged: str) -> dict[str, Any]:
    arguments = {"asked": asked, "tokenId": forged, "token_id": forged}
    if tool_name == "rest_bearer":
        return {"asked": asked}
    return {"items": [arguments]} if tool_name == "batch" else arguments


@asynccontextmanager
async def on_all(on: Service, kinds: Kinds) -> AsyncIterator[list[str]]:
    """Add the MCP server's tools to a service, and give the names of all tools."""
    on.tools.registry.add_server(kinds.mcp)
    await kinds.mcp.start()
    try:
        yield [each.name for each in on.tools.registry]
    finally:
        await kinds.mcp.aclose()


async def test_forged_token_argument_reaches_no_tool_and_no_record(
    tmp_path: Path, database_url: str
) -> None:
    failures = []
    async with (
        every_kind(tmp_path) as kinds,
        postgres_service(tmp_path, database_url, *kinds.tools) as on,
        on_all(on, kinds) as names,
    ):
        for name in names:
            shown = json.dumps(on.tools.registry.read(name).parameters)
            with identity(token_id="t-ann"):
                outcome = await on.tools.call(name, forging(name, "hi", "mallory"))
            row = await on.row(outcome)
            inner = row if name != "batch" else (await on.rows(outcome.root_plan_id)).tool_calls[1]
            sent = kinds.api.received[-1].headers if name == "rest_bearer" else ""
            got = {
                "error": outcome.error,
                "shown to the model": "token" in shown.lower(),
                "has the caller": "t-ann" in f"{outcome.result} {sent}",
                "forged": sorted(inner["forgedArguments"]),
            }
            expected = {
                "error": None,
                "shown to the model": False,
                "has the caller": True,
                "forged": [] if name == "rest_bearer" else ["tokenId", "token_id"],
            }
            if got != expected:
                failures.append(f"{name}: {got}")
        stored = str(on.events)

    assert failures == []
    assert len(names) == 13
    assert "mallory" not in stored


async def test_call_without_a_caller_is_rejected_by_every_kind_of_executor(tmp_path: Path) -> None:
    async with (
        every_kind(tmp_path) as kinds,
        service(tmp_path, *kinds.tools) as on,
        on_all(on, kinds) as names,
    ):
        outcomes = [await on.tools.call(name, forging(name, "hi", "mallory")) for name in names]

    reasons = {each: outcome.reason for each, outcome in zip(names, outcomes, strict=True)}
    assert reasons.pop("batch") == "tool_error"  # every item failed
    assert set(reasons.values()) == {"missing_identity"}
    assert kinds.api.received == []


def test_tool_with_a_visible_token_parameter_is_rejected() -> None:
    makers: list[Callable[[], object]] = [
        lambda: tool(token_visible),
        lambda: of_schema(),
        lambda: stateful_tool(name="stateful", create=Keeping),
        lambda: stateful_tool(name="stateful", create=lambda: Keeping(), parameters=SCHEMA),
        lambda: of_langchain(SCHEMA, "langchain"),
        lambda: of_langchain(None, "langchain"),
        lambda: rest_tool(
            name="rest",
            description="",
            parameters=SCHEMA,
            config=RestConfig(base_url="https://api.example"),
        ),
    ]
    assert not_rejected(RegistrationError, lambda make: make(), makers) == []


async def test_mcp_tool_with_a_token_parameter_is_skipped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        live_server(tmp_path, "http") as live,
        McpServer(live.config(tools=["whoami", "lines"])) as server,
    ):
        names = [each.name for each in await server.tools()]

    assert names == ["lines"]
    assert 'hidden = { token_id = "token" }' in caplog.text


async def test_agent_never_shows_a_hidden_parameter_to_its_model(tmp_path: Path) -> None:
    asked = [call("by_option", {"asked": "hi", "token_id": "mallory"}), call("of_schema", "{")]
    model = ScriptedModel([Script([Turn(calls=asked), Turn("done")], request="Go")])
    worker = Agent("worker", "Work.", tools=(tool(name="by_option", hidden=HIDE)(token_visible),))
    store = recording_in_memory()
    app = Application(name="tests", agents=(worker,), model=model)
    async with bench(app, store, store, tmp_path) as on:
        with identity(token_id="t-ann"):
            run = await on.launcher.run("Go", agent="worker")
        rows = await on.rows(run.root_plan_id)
        recorded = messages_of(store, run.root_plan_id)

    assert "mallory" not in str(rows.tool_calls) + str(recorded)
    assert rows.tool_calls[0]["forgedArguments"] == ["token_id"]


async def test_nested_fields_with_hidden_names_are_kept(tmp_path: Path) -> None:
    @tool
    async def store_patients(patients: list[dict[str, str]], user_id: UserId) -> int:
        assert patients == [{"user_id": "u-9"}]
        return len(patients)

    async with service(tmp_path, store_patients) as on:
        with identity(token_id="t-ann"):
            outcome = await on.tools.call("store_patients", {"patients": [{"user_id": "u-9"}]})

    assert outcome.result == "1"


@tool
async def greet(user_id: UserId | None = None) -> str:
    return "nobody" if user_id is None else user_id


async def test_optional_identity_is_absent_for_an_anonymous_caller(tmp_path: Path) -> None:
    async with http_server(answer) as api:
        header = rest_tool(
            name="header",
            description="",
            parameters={"type": "object"},
            hidden={"user_id": UserId | None},
            config=RestConfig(base_url=api.url, allowed_hosts=frozenset({api.host})),
        )
        async with service(tmp_path, greet, header) as on:
            anonymous = [(await on.tools.call(each)).result for each in ("greet", "header")]
            with identity(token_id="ann"):
                known = [(await on.tools.call(each)).result for each in ("greet", "header")]

    assert anonymous == ["nobody", "[null]"]
    assert known == ["ann", '["ann",null]']


def test_boolean_is_rejected_for_a_number_parameter() -> None:
    @tool
    def count(number: int, numbers: list[int | float], flag: bool = False) -> None: ...

    assert count.checked({"number": 1, "numbers": [1, 1.5], "flag": True})["number"] == 1
    wrong = [{"number": True, "numbers": []}, {"number": 1, "numbers": [False]}]
    assert not_rejected(InvalidArguments, count.checked, wrong) == []


# --- Many callers at once ----------------------------------------------------------------------


CALLERS = 50


async def test_fifty_parallel_callers_use_only_their_own_tokens_in_every_executor(
    tmp_path: Path,
) -> None:
    async with (
        every_kind(tmp_path) as kinds,
        service(tmp_path, *kinds.tools, through_threads, through_executor) as on,
        on_all(on, kinds) as names,
        asyncio.timeout(4 * PATIENCE),
    ):
        service_of_test.append(on.tools)
        names = [each for each in names if not each.startswith("through_")]
        results = await asyncio.gather(*(caller(on, number, names) for number in range(CALLERS)))
        service_of_test.clear()

    sent = [each for each in kinds.api.received if "authorization" in each.headers]
    bearers = {each.headers["authorization"]: dict(each.query)["asked"] for each in sent}
    assert bearers == {f"Bearer t-{number:02}": f"{number}" for number in range(CALLERS)}
    crossed = []
    for number, texts in enumerate(results):
        others = {f"t-{each:02}" for each in range(CALLERS)} - {f"t-{number:02}"}
        crossed += [text for text in texts if f"t-{number:02}" not in text]
        crossed += [text for text in texts if any(other in text for other in others)]
    assert crossed == []
    assert all(len(texts) == len(names) - 1 + 2 + 4 for texts in results)
    assert "forged-" not in str(on.events)


service_of_test: list[ToolService] = []


@tool
def through_threads(asked: str) -> list[str]:
    """Call another tool from a plain thread."""
    results: list[str] = []

    def run() -> None:
        outcome = service_of_test[0].call_sync("token_by_type", {"asked": asked})
        results.append(str(outcome.result))

    thread = threading.Thread(target=in_context(run))
    thread.start()
    thread.join()
    return results


@tool
async def through_executor(asked: str) -> str:
    """Call another tool from a thread of the event loop's executor."""
    tools = service_of_test[0]

    def run() -> str:
        return str(tools.call_sync("token_by_type", {"asked": asked}).result)

    return await asyncio.get_running_loop().run_in_executor(None, in_context(run))


async def caller(on: Service, number: int, names: list[str]) -> list[str]:
    """Call every tool as one caller, by every way, and return the results."""
    token = f"t-{number:02}"
    texts = []

    async def stream() -> AsyncIterator[str]:
        with identity(token_id=token):
            for turn in range(4):
                outcome = await on.tools.call("token_by_type", {"asked": f"{turn}"})
                yield str(outcome.result)

    with identity(token_id=token):
        for name in names:
            arguments = forging(name, f"{number}", f"forged-{number}")
            outcome = await on.tools.call(name, arguments)
            if name != "rest_bearer":  # what the other side repeats is hidden: see what it received
                texts.append(str(outcome.result))
        for name in ("through_threads", "through_executor"):
            texts.append(str((await on.tools.call(name, {"asked": f"{number}"})).result))
    texts += [each async for each in stream()]
    assert current_identity() is None
    return texts
