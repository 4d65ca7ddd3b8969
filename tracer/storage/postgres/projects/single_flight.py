"""Single flight: concurrent calls with the same key share one execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class SingleFlight(Generic[Answer]):
    """The calls in progress, by key. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Answer]] = {}

    async def run(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the result of `call`, or of a call in progress with the same key.

        If a caller is cancelled, the call continues for the others.

        Args:
            key: Identifies the call.
            call: The call. Its error is raised for all callers.
        """
        task = self._tasks.get(key)
        if task is None:
            # In an empty context, because it serves others than the caller that started it.
            task = self._tasks[key] = asyncio.create_task(call(), context=Context())
            task.add_done_callback(partial(self._end, key))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Let later callers start new calls. The calls in progress may return outdated results."""
        self._tasks.clear()

    def _end(self, key: Hashable, task: asyncio.Task[Answer]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # retrieved, because asyncio logs errors that are not
