"""Budgets: what a run, or a sub-plan within it, may use up.

Budgets are a tree: what a sub-plan uses counts for everything above it. A use is reserved before
it begins, so that parts that run side by side cannot use more together than there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tracer.errors import BudgetExhausted, RegistrationError


@dataclass(frozen=True, kw_only=True)
class BudgetLimits:
    """What may be used; None: as much as needed."""

    tool_calls: int | None = None
    """Tool calls, those of sub-plans included."""
    tokens: int | None = None
    """Tokens that models are given and answer with."""
    seconds: float | None = None
    """How long it may take."""

    def __post_init__(self) -> None:
        for each in (self.tool_calls, self.tokens, self.seconds):
            if each is not None and each < 0:
                raise RegistrationError("A budget is at least 0; leave out what has no limit.")


class Budget:
    """What is left of some limits, and of those above."""

    def __init__(self, limits: BudgetLimits, above: Budget | None = None) -> None:
        self._limits = limits
        self._chain: list[Budget] = [self] if above is None else [self, *above._chain]
        """This one and those above."""
        self._tool_calls = 0
        self._tokens = 0
        self._longest: int | None = None
        """How many tokens the longest answer took; None before the first."""
        self._asking = 0
        """How many questions hold tokens now."""
        self._settled: asyncio.Event = asyncio.Event() if above is None else above._settled

    def reserve_tool_call(self) -> None:
        """Count a call that is about to begin.

        Raises:
            BudgetExhausted: There is none left, here or above.
        """
        for each in self._chain:
            limit = each._limits.tool_calls
            if limit is not None and each._tool_calls >= limit:
                raise BudgetExhausted(
                    f"All {limit} tool calls are used up. Answer with what is known."
                )
        for each in self._chain:
            each._tool_calls += 1

    @asynccontextmanager
    async def reserved_tokens(self, prompt: int) -> AsyncIterator[TokenUse]:
        """Hold tokens for a question to a model; afterwards those that it took count.

        Besides the prompt's own, as many are held as the longest answer took that was given so far.
        Until there was one, and where there is not enough for all, questions wait for each other.

        Args:
            prompt: How many the question itself will take.

        Raises:
            BudgetExhausted: There are fewer left, here or above.
        """
        limited = [each for each in self._chain if each._limits.tokens is not None]
        while any(each._has_to_wait(prompt) for each in limited):
            await self._settled.wait()
        held = [(each, each._wanted(prompt)) for each in limited]
        for each, tokens in held:
            each._tokens += tokens
            each._asking += 1
        use = TokenUse(prompt)
        try:
            yield use
        finally:
            for each, tokens in held:
                each._tokens += use.tokens - tokens
                each._asking -= 1
                if use.tokens > prompt:
                    each._longest = max(each._longest or 0, use.tokens - prompt)
            self._settled.set()
            self._settled.clear()  # those who wait by now have been woken

    def _has_to_wait(self, prompt: int) -> bool:
        """Return whether a question has to wait for others.

        Raises:
            BudgetExhausted: It would wait in vain.
        """
        limit = self._limits.tokens
        assert limit is not None
        free = limit - self._tokens
        if free > 0 and prompt + (self._longest or 0) <= free:
            return self._longest is None and self._asking > 0
        if not self._asking:
            raise BudgetExhausted(f"The {limit} tokens are used up, or too few for a question.")
        return True

    def _wanted(self, prompt: int) -> int:
        assert self._limits.tokens is not None
        if self._longest is None:
            return self._limits.tokens - self._tokens
        return prompt + self._longest


@dataclass
class TokenUse:
    """How many tokens a question and its answer took; the question's own, until it is known."""

    tokens: int
