"""Places: how many calls of a tool, or of a group of tools, run at once in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tracer.tools.definition import EXCLUSIVE, PARALLEL, Tool


def needs_place(tool: Tool) -> bool:
    """Return whether a call of `tool` may have to wait for others."""
    return tool.max_parallel is not None or tool.concurrency not in (PARALLEL, EXCLUSIVE)


class Places:
    """The places that there are."""

    def __init__(self) -> None:
        self._semaphores: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def taken(self, tool: Tool, held: frozenset[str]) -> AsyncIterator[frozenset[str]]:
        """Take the places that a call needs, and give what it then holds.

        Args:
            tool: The tool.
            held: What the calls around it hold already: those places do for it, too, since it
                would otherwise wait for a call that waits for it.
        """
        wanted: list[tuple[str, int]] = []
        if tool.concurrency not in (PARALLEL, EXCLUSIVE):
            wanted.append((f"group {tool.concurrency}", 1))
        if tool.max_parallel is not None:
            wanted.append((f"tool {tool.name}", tool.max_parallel))
        async with AsyncExitStack() as stack:
            for key, places in wanted:
                if key not in held:
                    semaphore = self._semaphores.setdefault(key, asyncio.Semaphore(places))
                    await stack.enter_async_context(semaphore)
            yield held | {key for key, _ in wanted}
