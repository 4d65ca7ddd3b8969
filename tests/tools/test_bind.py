"""`bind` fixes parameters of a tool, and `get_token_id` returns the caller's token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.tools.http_servers import Received, http_server, reply
from tests.tools.mcp_servers import live_server
from tests.tools.service_bench import service
from tracer.adapters.langchain import to_langchain
from tracer.context import get_token_id, identity, in_context
from tracer.errors import RegistrationError
from tracer.tools import Toolkit, tool
from tracer.tools.functions import stateful_tool
from tracer.tools.mcp import McpServer
from tracer.tools.parameters import Hidden, TokenId, User, UserId
from tracer.tools.rest import BearerAuth, RestConfig, rest_tool


def convert() -> str:
    """Help a tool: return the caller's token, or `nobody`. In capitals, which are not masked."""
    return (get_token_id() or "nobody").upper()


@tool
def whoami() -> str:
    return convert()


@tool
async def whoami_everywhere() -> list[str]:
    seen = [convert(), await asyncio.to_thread(convert)]
    seen.append(await asyncio.create_task(asyncio.to_thread(convert)))

    def note() -> None:
        seen.append(convert())

    thread = threading.Thread(target=in_context(note))
    thread.start()
    thread.join()
    return seen


@tool
def whoami_yielded() -> Iterator[str]:
    yield convert()
    yield convert()


async def resolve(token_id: str) -> User | None:
    return User(f"user of {token_id.upper()}") if token_id.startswith("token") else None


async def test_get_token_id_returns_the_token_of_the_running_call(tmp_path: Path) -> None:
    async with service(tmp_path, whoami, whoami_everywhere, whoami_yielded) as on:
        anonymous = await on.tools.call("whoami")
        with identity(token_id="token-ann"):
            outside = get_token_id()
            names = ("whoami", "whoami_everywhere", "whoami_yielded")
            found = [(await on.tools.call(each)).result for each in names]
            async with on.tools.run("A run"):
                within_run = get_token_id()

    assert anonymous.result == "NOBODY"
    assert found == [
        "TOKEN-ANN",
        '["TOKEN-ANN","TOKEN-ANN","TOKEN-ANN","TOKEN-ANN"]',
        "TOKEN-ANN" * 2,
    ]
    assert (outside, within_run, get_token_id()) == (None, None, None)


@tool
def describe(
    user_id: UserId, who: User, token: TokenId, unit: str = "mmHg", limit: int = 3
) -> list[Any]:
    """Describe the caller."""
    return [user_id == who.user_id, user_id[5:], token.upper(), unit, limit, convert()]


async def test_bound_token_is_the_caller_of_the_call(tmp_path: Path) -> None:
    bound = describe.bind(token_id="token-ann")
    async with service(tmp_path, bound, resolve_token=resolve) as on:
        alone = await on.tools.call("describe")
        with identity(token_id="token-bob"):
            other = await on.tools.call("describe", {"token_id": "forged", "token": "forged"})
        row = await on.row(other)

    assert alone.error is None
    assert alone.result == '[true,"of TOKEN-ANN","TOKEN-ANN","mmHg",3,"TOKEN-ANN"]'
    assert other.reason == "invalid_arguments"  # `token_id` is no parameter of this tool
    assert row["forgedArguments"] == ["token"]
    assert describe.caller is None


@pytest.mark.parametrize("name", ["token", "user_id", "who"])
async def test_every_parameter_about_the_caller_binds_the_caller(name: str, tmp_path: Path) -> None:
    async with service(tmp_path, describe.bind(**{name: "token-ann"}), resolve_token=resolve) as on:
        outcome = await on.tools.call("describe", {"limit": 4})

    assert outcome.result == '[true,"of TOKEN-ANN","TOKEN-ANN","mmHg",4,"TOKEN-ANN"]'


async def test_resolver_that_rejects_a_bound_token_fails_the_call(tmp_path: Path) -> None:
    async with service(tmp_path, describe.bind(token_id="unknown"), resolve_token=resolve) as on:
        outcome = await on.tools.call("describe")

    assert outcome.reason == "missing_identity"


async def test_bound_visible_parameter_leaves_the_schema_and_the_original_keeps_it(
    tmp_path: Path,
) -> None:
    @tool
    def add(a: int, b: int, note: Annotated[str, Hidden(lambda: "provided")]) -> str:
        return f"{a + b} {note[::-1]}"

    bound = add.bind(b=40, note="fixed")
    async with service(tmp_path, bound) as on:
        outcome = await on.tools.call("add", {"a": 2, "b": 1})
    async with service(tmp_path / "other", add) as on:
        original = await on.tools.call("add", {"a": 2, "b": 1})
        again = [each["name"] for each in (await on.rows(original.root_plan_id)).tool_calls]

    assert list(bound.parameters["properties"]) == bound.parameters["required"] == ["a"]
    assert list(add.parameters["properties"]) == ["a", "b"]
    assert (outcome.result, original.result) == ("42 dexif", "3 dedivorp")
    assert again == ["add"]


def test_unknown_or_contradictory_binding_is_rejected() -> None:
    with pytest.raises(RegistrationError, match="no parameter 'unitt' to bind"):
        describe.bind(unitt="kPa")
    with pytest.raises(RegistrationError, match="one token"):
        describe.bind(token="a", user_id="b")
    with pytest.raises(RegistrationError, match="one token"):
        describe.bind(token_id="")
    with pytest.raises(RegistrationError, match="No tool of Toolkit has a parameter 'unitt'"):
        Toolkit([describe, whoami]).bind(unitt="kPa")


class Counter:
    def execute(self, token_id: TokenId, by: int) -> str:
        return f"{token_id.upper()} {by}"


async def test_every_kind_of_tool_can_be_bound(tmp_path: Path) -> None:
    def answer(request: Received) -> bytes:
        return reply(json=[request.headers["authorization"].upper(), dict(request.query)["by"]])

    async with http_server(answer) as api, live_server(tmp_path, "http") as live:
        rest = rest_tool(
            name="rest",
            description="",
            parameters={
                "type": "object",
                "properties": {"by": {"type": "integer"}},
                "required": ["by"],
                "additionalProperties": False,
            },
            config=RestConfig(
                base_url=api.url,
                allowed_hosts=frozenset({api.host}),
                auth=BearerAuth(secret="caller:token"),
            ),
        )
        config = live.config(tools=["whoami"], hidden={"token_id": TokenId})
        async with McpServer(config) as server:
            [mcp] = await server.tools()
            stateful = stateful_tool(name="stateful", create=Counter)
            kit = Toolkit([rest, stateful]).bind(token_id="token-ann", by=7)
            mcp_bound = mcp.bind(token_id="token-ann", asked="hi")
            async with service(tmp_path / "service", kit, mcp_bound, describe) as on:
                names = ("rest", "stateful", "whoami")
                results = [await on.tools.call(each) for each in names]
                theirs = to_langchain(mcp_bound, on.tools)
                through_langchain = await theirs.ainvoke({})

    assert [each.error for each in results] == [None] * 3
    assert [each.result for each in results[:2]] == ['["BEARER TOKEN-ANN","7"]', "TOKEN-ANN 7"]
    assert "[hidden]" in (results[2].result or "")
    assert through_langchain == results[2].result
    assert "asked" not in theirs.tool_call_schema.get("properties", {})  # type: ignore[union-attr]


async def test_streams_of_two_bound_tools_read_in_turn_stay_apart(tmp_path: Path) -> None:
    ann, bob = (whoami_everywhere.bind(token_id=f"token-{each}") for each in ("ann", "bob"))

    async def stream(on: Any, token: str) -> AsyncIterator[str]:
        with identity(token_id=token):
            for _ in range(3):
                yield (await on.tools.call("whoami_everywhere")).result

    async with service(tmp_path / "a", ann) as first, service(tmp_path / "b", bob) as second:
        streams = stream(first, "token-bob"), stream(second, "token-ann")
        found = [[await anext(each) for each in streams] for _ in range(3)]

    assert all("ANN" in one and "BOB" not in one for one, _ in found)
    assert all("BOB" in two and "ANN" not in two for _, two in found)
