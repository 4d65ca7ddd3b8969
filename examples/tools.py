"""The tools of docs/guides/tools.md in one program. It needs no server: `python tools.py`.

Each tool is called through a `ToolService`, as an agent calls it. Pass a recorder to the service,
or give the tools to an `Agent`, to record the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from tracer import (
    BudgetLimits,
    Denied,
    Hidden,
    SessionState,
    ToolContext,
    ToolError,
    Toolkit,
    ToolRegistry,
    ToolService,
    ToolUnavailable,
    UserId,
    identity,
    stateful_tool,
    tool,
)


@tool
async def record_pulse(
    beats: Annotated[int, Field(ge=20, le=250)], arm: Literal["left", "right"] = "left"
) -> str:
    """Record a pulse.

    Args:
        beats: Beats per minute.
        arm: Where it was measured.
    """
    return f"{beats} at the {arm} arm"


@tool
def update_pulse(record_id: int, beats: int) -> None:
    """Correct a pulse."""
    raise ToolError(f"You have no record {record_id}. Query first.")


class Diary:
    """What a real program keeps in a database."""

    async def add(self, user_id: str, text: str) -> int:
        """Return the entry's number."""
        return len(text)


diary = Diary()


@tool
async def note(
    text: str,
    user_id: UserId,
    diary: Annotated[Diary, Hidden(lambda: diary)],
    context: ToolContext,
) -> str:
    """Write into the diary. The model sees only `text`."""
    return f"entry {await diary.add(user_id, text)}, attempt {context.attempt}"


class Cart:
    """One instance for each conversation."""

    def __init__(self) -> None:
        self.items: list[str] = []

    async def execute(self, item: str) -> int:
        """Put an item into the cart, and say how many there are."""
        self.items.append(item)
        return len(self.items)


@tool(max_attempts=3, timeout=10, max_parallel=1)
async def book(amount: int, context: ToolContext) -> str:
    """Book an amount."""
    if context.attempt == 1:
        raise ToolUnavailable("The ledger is away.", retry_after=0.01)
    return f"booked {amount} at attempt {context.attempt}"


async def limited(
    next: Callable[[dict[str, Any]], Awaitable[str]],
    arguments: dict[str, Any],
) -> str:
    """Reject large amounts: a hook."""
    if arguments["amount"] > 1000:
        raise Denied("More than 1000 needs a person.")
    return await next(arguments)


@tool(tool_hooks=[limited])
async def transfer(amount: int) -> str:
    """Transfer an amount."""
    return f"{amount} transferred"


class ShoppingList(Toolkit):
    """Tools that share instructions and a session state."""

    def __init__(self) -> None:
        super().__init__(
            instructions="The shopping list has: {items}.", session_state={"items": []}
        )
        self.register(self.add_item)

    def add_item(self, state: SessionState, item: str) -> list[str]:
        """Add an item to the shopping list."""
        state["items"].append(item)
        return list(state["items"])


async def main() -> None:
    """Call each tool, and print its result or the reason of its failure."""
    registry = ToolRegistry([record_pulse, update_pulse, note, book, transfer])
    registry.register(stateful_tool(name="buy", create=Cart))
    registry.register(ShoppingList())
    async with ToolService(registry) as tools:

        async def show(name: str, arguments: dict[str, Any], thread_id: str | None = None) -> None:
            outcome = await tools.call(name, arguments, thread_id=thread_id)
            failure = outcome.error and f"{outcome.reason}: {outcome.error.message}"
            print(f"{name}: {failure or outcome.result}")  # noqa: T201

        await show("record_pulse", {"beats": 72})
        await show("record_pulse", {"beats": 720})
        await show("update_pulse", {"record_id": 7, "beats": 70})
        await show("note", {"text": "slept well"})
        with identity(token_id="user-4711"):
            await show("note", {"text": "slept well", "userId": "somebody else"})
        await show("buy", {"item": "bandage"}, thread_id="ann")
        await show("buy", {"item": "plaster"}, thread_id="ann")
        await show("buy", {"item": "plaster"}, thread_id="bob")
        await show("book", {"amount": 5})
        await show("transfer", {"amount": 5})
        await show("transfer", {"amount": 5000})
        await show("add_item", {"item": "salt"}, thread_id="kitchen")
        await show("add_item", {"item": "tea"}, thread_id="kitchen")
        async with tools.run("A search", limits=BudgetLimits(tool_calls=2)):
            for beats in (70, 71, 72):
                await show("record_pulse", {"beats": beats})


if __name__ == "__main__":
    asyncio.run(main())
