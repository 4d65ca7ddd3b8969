"""Stateful tools, called as the runtime calls them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.tools.contexts import some_context
from tracer.context import ToolContext, current_tool_context, tool_context_bound
from tracer.errors import LineageError, RegistrationError
from tracer.tools import ToolType
from tracer.tools.functions import ThreadContextManager, stateful_tool
from tracer.tools.parameters import JsonSchema

BY: JsonSchema = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
NOTHING: JsonSchema = {"type": "object", "properties": {}}


class Counter:
    """Counts, for itself."""

    def __init__(self) -> None:
        self.count = 0
        self.is_closed = False

    def execute(self, by: int) -> int:
        """Count on.

        Args:
            by: How far.
        """
        self.count += by
        return self.count

    def close(self) -> None:
        self.is_closed = True


class AsyncCounter(Counter):
    async def execute(self, by: int) -> int:  # type: ignore[override]
        before = self.count
        await asyncio.sleep(0)
        self.count = before + by
        return self.count


class CountsWhenCalled:
    def __init__(self) -> None:
        self.counter = Counter()

    async def __call__(self, by: int) -> int:
        return self.counter.execute(by)


async def open_counter() -> Counter:
    await asyncio.sleep(0)
    return Counter()


@asynccontextmanager
async def counter_with_context(context: ToolContext) -> AsyncIterator[Counter]:
    counter = Counter()
    counter.count = 100 if context.thread_id == "a" else 200
    yield counter


@pytest.fixture
async def threads() -> AsyncIterator[ThreadContextManager]:
    manager = ThreadContextManager()
    yield manager
    await manager.aclose()


@dataclass(frozen=True)
class InThread:
    """As much of a run as a stateful tool needs."""

    threads: ThreadContextManager
    thread_id: str

    async def conversation(self) -> str:
        return self.thread_id


def in_thread(threads: ThreadContextManager, thread_id: str) -> ToolContext:
    run = InThread(threads, thread_id)
    return replace(some_context(), thread_id=thread_id, run=run)


@pytest.mark.parametrize(
    ("create", "counts"),
    [
        (Counter, [1, 3, 1, 6]),
        (AsyncCounter, [1, 3, 1, 6]),
        (CountsWhenCalled, [1, 3, 1, 6]),
        (open_counter, [1, 3, 1, 6]),
        (lambda: open_counter(), [1, 3, 1, 6]),
        (lambda: Counter().execute, [1, 3, 1, 6]),
        (counter_with_context, [101, 103, 201, 106]),
    ],
)
async def test_calls_of_one_conversation_share_a_tool_instance(
    threads: ThreadContextManager, create: Callable[..., Any], counts: list[int]
) -> None:
    tool = stateful_tool(name="count", description="Counts.", parameters=BY, create=create)
    calls = [("a", 1), ("a", 2), ("b", 1), ("a", 3)]

    assert [
        await tool.run({"by": by}, in_thread(threads, thread_id)) for thread_id, by in calls
    ] == counts
    assert tool.tool_type is ToolType.STATEFUL


async def test_concurrent_calls_of_one_conversation_are_isolated(
    threads: ThreadContextManager,
) -> None:
    tool = stateful_tool(name="count", create=AsyncCounter)
    context = in_thread(threads, "a")
    counts = await asyncio.gather(*(tool.run({"by": 1}, context) for _ in range(50)))

    assert counts == list(range(1, 51))


async def test_instances_are_cleaned_up_when_their_conversation_ends(
    threads: ThreadContextManager,
) -> None:
    made: list[Counter] = []

    def create() -> Counter:
        made.append(Counter())
        return made[-1]

    tool = stateful_tool(name="count", parameters=BY, create=create)
    for thread_id in ("a", "b"):
        await tool.run({"by": 1}, in_thread(threads, thread_id))
    await threads.end_thread("a")

    assert [each.is_closed for each in made] == [True, False]


async def test_synchronous_code_runs_in_threads_with_the_calls_context(
    threads: ThreadContextManager,
) -> None:
    seen = []

    class Looks:
        def __init__(self) -> None:
            self.look()

        def look(self) -> None:
            seen.append((threading.current_thread() is threading.main_thread(), self.call()))

        def call(self) -> Any:
            context = current_tool_context()
            return context and context.thread_id

        def execute(self) -> None:
            self.look()

        def close(self) -> None:
            self.look()

    tool = stateful_tool(name="look", parameters=NOTHING, create=Looks)
    context = in_thread(threads, "a")
    with tool_context_bound(context):
        await tool.run({}, context)
    await threads.aclose()

    assert seen == [(False, "a"), (False, "a"), (False, None)]


async def test_stateful_tool_accepts_arguments_of_any_name(threads: ThreadContextManager) -> None:
    class Takes:
        def execute(self, **arguments: Any) -> dict[str, Any]:
            return arguments

    tool = stateful_tool(name="take", parameters=NOTHING, hidden={}, create=Takes)
    arguments = {"function": 1, "create": 2, "instance": 3, "given": 4, "context": 5}

    assert await tool.run(arguments, in_thread(threads, "a")) == arguments


async def test_stateful_tool_called_outside_a_run_is_refused() -> None:
    tool = stateful_tool(name="count", parameters=BY, create=Counter)
    with pytest.raises(LineageError, match="keeps an object between calls"):
        await tool.run({"by": 1}, some_context())


async def test_uncallable_tool_fails_with_a_reason(threads: ThreadContextManager) -> None:
    tool = stateful_tool(name="count", parameters=BY, create=object)
    with pytest.raises(TypeError, match="object has no method `execute`"):
        await tool.run({"by": 1}, in_thread(threads, "a"))


# --- What the signature says -------------------------------------------------------------------


def says_counter() -> Counter:
    return Counter()


async def says_counter_later(context: ToolContext) -> Counter:
    return Counter()


class Hides(Counter):
    """Has an `execute` that gets more than a model gives."""

    def execute(self, by: int, context: ToolContext) -> int:  # type: ignore[override]
        """Count on."""
        return super().execute(by)


class Static:
    @staticmethod
    def execute(by: int) -> int:
        """Count on."""
        return by


@pytest.mark.parametrize(
    "create",
    [Counter, says_counter, says_counter_later, counter_with_context, Hides, Static],
)
def test_schema_comes_from_the_signature_of_execute(create: Callable[..., Any]) -> None:
    tool = stateful_tool(name="count", create=create)

    assert list(tool.parameters["properties"]) == ["by"]
    assert tool.description == "Count on."
    assert list(tool.hidden) == (["context"] if create is Hides else [])


async def test_execute_receives_its_hidden_parameters(threads: ThreadContextManager) -> None:
    tool = stateful_tool(name="count", create=Hides)
    context = in_thread(threads, "a")

    assert await tool.run({"by": 2, "context": context}, context) == 2


def test_schema_parameters_can_be_hidden_by_type_or_option() -> None:
    by_type = stateful_tool(name="count", parameters=BY, create=Hides)
    by_option = stateful_tool(
        name="count", parameters=BY, hidden={"context": ToolContext}, create=lambda: Hides()
    )

    for tool in (by_type, by_option):
        assert list(tool.parameters["properties"]) == ["by"]
        assert list(tool.hidden) == ["context"]


def needs_two(context: ToolContext, other: int) -> Counter:
    raise NotImplementedError


def needs_by_name(*, context: ToolContext) -> Counter:
    raise NotImplementedError


def says_nothing():  # type: ignore[no-untyped-def]
    raise NotImplementedError


@pytest.mark.parametrize(
    ("create", "says"),
    [
        (needs_two, "requires context.*, other.*. It can have one required parameter"),
        (needs_by_name, "It can have one required parameter"),
        (says_nothing, "cannot be derived. Give `parameters`"),
        (object, "cannot be derived. Give `parameters`"),
    ],
)
def test_invalid_stateful_tool_is_rejected_at_definition(
    create: Callable[..., Any], says: str
) -> None:
    with pytest.raises(RegistrationError, match=says):
        stateful_tool(name="count", create=create)


def test_stateful_tool_accepts_the_options_of_other_tools() -> None:
    tool = stateful_tool(
        name="count", create=Counter, description="Mine.", timeout=3, max_attempts=2, tags=["x"]
    )

    assert (tool.description, tool.timeout, tool.max_attempts) == ("Mine.", 3, 2)
    assert tool.tags == {"x"}
