"""Budgets: limits on the tool calls, tokens and seconds of a run or of a sub-plan.

Budgets form a tree. The tool calls and tokens of a sub-plan also count against every budget above
it. They are reserved before the work begins, so that parallel work cannot exceed a limit together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tracer.errors import BudgetExhausted, RegistrationError


@dataclass(frozen=True, kw_only=True)
class BudgetLimits:
    """Limits; None means unlimited."""

    tool_calls: int | None = None
    """Tool calls, including those of sub-plans."""
    tokens: int | None = None
    """Tokens of the model's prompts and completions."""
    seconds: float | None = None
    """How long the plan may take."""

    def __post_init__(self) -> None:
        for each in (self.tool_calls, self.tokens, self.seconds):
            if each is not None and each < 0:
                raise RegistrationError("A budget must be 0 or more. Leave it out for no limit.")


class Budget:
    """Counts tool calls and tokens, and rejects work that would exceed a limit.

    The limits of the budgets above apply, too.
    """

    def __init__(self, limits: BudgetLimits, parent: Budget | None = None) -> None:
        self._limits = limits
        self._chain: list[Budget] = [self] if parent is None else [self, *parent._chain]
        """This budget and those above it."""
        self._tool_calls = 0
        self._tokens = 0
        self._largest_completion: int | None = None
        """Tokens of the largest completion so far; None before the first."""
        self._requests = 0
        """The number of model requests in progress, which have reserved tokens."""
        self._settled: asyncio.Event = asyncio.Event() if parent is None else parent._settled
        """Set for a moment whenever a request returns its reservation."""

    def reserve_tool_call(self) -> None:
        """Count a call that is about to start.

        Raises:
            BudgetExhausted: No call is left, in this budget or in one above.
        """
        for each in self._chain:
            limit = each._limits.tool_calls
            if limit is not None and each._tool_calls >= limit:
                raise BudgetExhausted(
                    f"The budget of {limit} tool calls is used up. Answer with the information "
                    "that you have."
                )
        for each in self._chain:
            each._tool_calls += 1

    @asynccontextmanager
    async def reserved_tokens(self, prompt: int) -> AsyncIterator[TokenUse]:
        """Reserve tokens for a request to a model; on exit, count the tokens that it really used.

        The reservation is the prompt plus the largest completion so far. Until the first completion
        has ended, only one request runs at a time. Later, a request waits while the other requests
        leave too few tokens.

        Args:
            prompt: The estimated number of tokens of the prompt.

        Raises:
            BudgetExhausted: This budget, or one above it, has too few tokens left.
        """
        limited = [each for each in self._chain if each._limits.tokens is not None]
        while any(each._has_to_wait(prompt) for each in limited):
            await self._settled.wait()
        held = [(each, each._reservation(prompt)) for each in limited]
        for each, tokens in held:
            each._tokens += tokens
            each._requests += 1
        use = TokenUse(prompt)
        try:
            yield use
        finally:
            for each, tokens in held:
                each._tokens += use.tokens - tokens
                each._requests -= 1
                if use.tokens > prompt:
                    completion = use.tokens - prompt
                    each._largest_completion = max(each._largest_completion or 0, completion)
            self._settled.set()
            self._settled.clear()  # the waiting tasks are scheduled by now

    def _has_to_wait(self, prompt: int) -> bool:
        """Return whether a request has to wait until other requests end.

        Raises:
            BudgetExhausted: Too few tokens are left, and no other request is active, so waiting
                would not help.
        """
        limit = self._limits.tokens
        assert limit is not None
        free = limit - self._tokens
        if free > 0 and prompt + (self._largest_completion or 0) <= free:
            return self._largest_completion is None and self._requests > 0
        if not self._requests:
            raise BudgetExhausted(
                f"The budget of {limit} tokens is used up, or too few tokens are left for another "
                "model request."
            )
        return True

    def _reservation(self, prompt: int) -> int:
        assert self._limits.tokens is not None
        if self._largest_completion is None:
            return self._limits.tokens - self._tokens
        return prompt + self._largest_completion


@dataclass
class TokenUse:
    """The tokens of a request and its completion.

    Until the model reports its usage, these are the estimated tokens of the prompt.
    """

    tokens: int
