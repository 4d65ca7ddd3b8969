"""Tools with hooks around them, for tests of hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracer.tools import Tool, tool

Next = Callable[[dict[str, Any]], Any]
Hook = Callable[..., Any]


def doubling(*hooks: Hook, **options: Any) -> Tool:
    """Return a synchronous tool `double` with hooks around it."""

    @tool(tool_hooks=hooks, **options)
    def double(number: int) -> int:
        return 2 * number

    return double


def around(next: Next, arguments: dict[str, Any], by: str = "") -> Any:
    """Put the tool's result in angle brackets."""
    return f"<{next(arguments)}>"


async def around_async(next: Next, arguments: dict[str, Any], by: str = "") -> Any:
    """Put the tool's result in angle brackets."""
    return f"<{await next(arguments)}>"
