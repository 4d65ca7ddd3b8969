"""Asking together: those who want to know the same at the same time ask the database once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class AskedTogether(Generic[Answer]):
    """Questions that are being asked. Belongs to one event loop."""

    def __init__(self) -> None:
        self._asking: dict[Hashable, asyncio.Task[Answer]] = {}

    async def answer(
        self, about: Hashable, ask: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        """Return what `ask` answers, to all who ask meanwhile, whatever becomes of the first.

        Args:
            about: What tells the question from others.
            ask: Asks; what it raises is raised for each.
        """
        asking = self._asking.get(about)
        if asking is None:
            # In a context of its own: it is for others than who happened to begin it.
            asking = self._asking[about] = asyncio.create_task(ask(), context=Context())
            asking.add_done_callback(partial(self._end, about))
        return await asyncio.shield(asking)

    def forget(self) -> None:
        """Let whoever asks from now on ask anew."""
        self._asking.clear()

    def _end(self, about: Hashable, asking: asyncio.Task[Answer]) -> None:
        if self._asking.get(about) is asking:
            del self._asking[about]
        if not asking.cancelled():
            asking.exception()  # it counts as heard, also where nobody waits any more
