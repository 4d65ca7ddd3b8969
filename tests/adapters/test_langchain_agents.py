"""Agents of LangChain's `create_agent` whose tools a `ToolService` runs and records."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import InjectedToolArg
from langchain_core.tools import tool as langchain_tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.databases import everything_stored
from tests.tools.service_bench import Service, postgres_service, service
from tracer.adapters.langchain import from_langchain, to_langchain
from tracer.context import identity
from tracer.errors import ToolError
from tracer.tools import Tool, tool
from tracer.tools.parameters import UserId

USERS = ("alice-canary-8c1f", "bob-canary-77d0")


class CallsThenAnswers(BaseChatModel):
    """Chooses the calls that the request is the JSON of, and answers when it has their results."""

    shown: list[Any]
    """What it was shown of the tools."""

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Runnable[Any, AIMessage]:
        self.shown += [convert_to_openai_tool(each) for each in tools]
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            answer = AIMessage("done")
        else:
            calls = [
                ToolCall(name=name, args=arguments, id=call_id, type="tool_call")
                for name, arguments, call_id in json.loads(last.text)
            ]
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    @property
    def _llm_type(self) -> str:
        return "calls-then-answers"


@pytest.fixture
def diary() -> dict[str, list[str]]:
    """What was written, by user."""
    return {}


@pytest.fixture
def tools(diary: dict[str, list[str]]) -> list[Tool]:
    both = asyncio.Barrier(len(USERS))

    @tool(timeout=60)
    async def record(systolic: int, user_id: UserId) -> str:
        """Records a reading, once everybody is there."""
        await both.wait()
        diary.setdefault(user_id, []).append(f"ours {systolic}")
        return f"recorded {systolic}"

    @langchain_tool
    def note(text: str, user_id: Annotated[str, InjectedToolArg]) -> str:
        """Notes."""
        diary.setdefault(user_id, []).append(f"theirs {text}")
        return f"{user_id} noted {text}"

    @tool
    async def fail(user_id: UserId) -> None:
        """Fails."""
        raise ToolError(f"{user_id} may not")

    return [record, fail, from_langchain(note, hidden={"user_id": UserId})]


REQUEST = [
    ("record", {"systolic": 120, "user_id": "mallory"}, "call_0"),
    ("note", {"text": "well", "userId": "mallory"}, "call_1"),
    ("fail", {}, "call_2"),
    ("note", {"text": "tired"}, "call_3"),
    ("record", {"systolic": "high"}, "call_4"),
]
RECORDED = [
    ("record", "call_0", "succeeded", None, ["user_id"]),
    ("note", "call_1", "succeeded", None, ["userId"]),
    ("fail", "call_2", "failed", "tool_error", []),
    ("note", "call_3", "succeeded", None, []),
    ("record", "call_4", "failed", "invalid_arguments", []),
]
TOLD = [
    (call_id, "success" if status == "succeeded" else "error")
    for _, call_id, status, _, _ in RECORDED
]
DONE = {"ours 120", "theirs well", "theirs tired"}


class Agent:
    """A `create_agent` agent of a service's tools."""

    def __init__(self, on: Service) -> None:
        self.on = on
        self.model = CallsThenAnswers(shown=[])
        wrapped = [to_langchain(each, on.tools) for each in on.tools.registry]
        self.graph: Any = create_agent(self.model, wrapped)

    async def run(self, calls: list[Any] = REQUEST) -> list[BaseMessage]:
        """Run it, and return its messages."""
        answer = await self.graph.ainvoke({"messages": [HumanMessage(json.dumps(calls))]})
        return list(answer["messages"])

    async def run_in_thread(self) -> list[BaseMessage]:
        """Run it where there is no event loop."""
        request = {"messages": [HumanMessage(json.dumps(REQUEST))]}
        answer = await asyncio.to_thread(self.graph.invoke, request)
        return list(answer["messages"])


Run = Callable[[Agent], Awaitable[list[BaseMessage]]]


def tool_messages(messages: list[BaseMessage]) -> list[tuple[str, str]]:
    return [(each.tool_call_id, each.status) for each in messages if isinstance(each, ToolMessage)]


async def check_two_users(on: Service, diary: dict[str, list[str]], run: Run) -> None:
    """Check that two users, side by side, each have a run of their own calls."""
    agent = Agent(on)

    async def ask(user: str) -> tuple[UUID, list[BaseMessage]]:
        with identity(token_id=user):
            async with on.tools.run("A day", session_id=f"session {USERS.index(user)}") as context:
                return context.root_plan_id, await run(agent)

    runs = await asyncio.gather(*map(ask, USERS))
    for root_plan_id, messages in runs:
        rows = await on.rows(root_plan_id)
        calls = sorted(rows.tool_calls, key=lambda each: str(each["providerCallId"]))
        fields = ("name", "providerCallId", "status", "reason", "forgedArguments")
        assert [tuple(each[field] for field in fields) for each in calls] == RECORDED
        assert len({each["toolCallId"] for each in calls}) == len(RECORDED)
        assert [(each["title"], each["status"]) for each in rows.plans] == [("A day", "succeeded")]
        assert tool_messages(messages) == TOLD
        assert messages[-1].text == "done"
    assert len({root_plan_id for root_plan_id, _ in runs}) == len(USERS)
    assert {user: set(done) for user, done in diary.items()} == dict.fromkeys(USERS, DONE)
    assert not [user for user in USERS if user in str(runs)]
    assert "user_id" not in str(agent.model.shown)


@pytest.mark.parametrize("run", [Agent.run, Agent.run_in_thread])
async def test_runs_of_two_users_are_separate_and_omit_user_ids(
    run: Run, tools: list[Tool], diary: dict[str, list[str]], tmp_path: Path
) -> None:
    async with service(tmp_path, *tools) as on:
        await check_two_users(on, diary, run)

    assert not [user for user in USERS if user in str(on.events)]


async def test_runs_of_two_users_are_separate_on_postgres(
    tools: list[Tool], diary: dict[str, list[str]], tmp_path: Path, database_url: str
) -> None:
    async with postgres_service(tmp_path, database_url, *tools) as on:
        await check_two_users(on, diary, Agent.run)

    stored = everything_stored(database_url)
    assert "mallory" not in stored
    assert not [user for user in USERS if user in stored]


async def test_tool_that_needs_a_caller_fails_without_a_caller(
    tools: list[Tool], diary: dict[str, list[str]], tmp_path: Path
) -> None:
    async with service(tmp_path, *tools) as on, on.tools.run("A day"):
        messages = await Agent(on).run()

    assert [status for _, status in tool_messages(messages)] == ["error"] * len(REQUEST)
    assert diary == {}


async def test_calls_of_an_agent_that_a_tool_runs_are_below_the_tool_call(
    tools: list[Tool], diary: dict[str, list[str]], tmp_path: Path
) -> None:
    agents: list[Agent] = []

    @tool
    async def delegate() -> str:
        """Asks another agent."""
        messages = await agents[0].run([("note", {"text": "deep"}, "call_0")])
        return str(messages[-1].text)

    async with service(tmp_path, *tools, delegate) as on:
        agents.append(Agent(on))
        with identity(token_id=USERS[0]):
            outcome = await on.tools.call("delegate")
        rows = await on.rows(outcome.root_plan_id)

    assert outcome.result == "done"
    calls = {each["name"]: each for each in rows.tool_calls}
    assert calls["note"]["parentToolCallId"] == calls["delegate"]["toolCallId"]
    assert diary == {USERS[0]: ["theirs deep"]}
