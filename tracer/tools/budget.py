"""Budgets: what a run, or a sub-plan within it, may use up.

Budgets are a tree: what a sub-plan uses counts for everything above it. A use is reserved before
it begins, so that parts that run side by side cannot use more together than there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
        self._above = above
        self._tool_calls = 0
        self._tokens = 0

    def reserve_tool_call(self) -> None:
        """Count a call that is about to begin.

        Raises:
            BudgetExhausted: There is none left, here or above.
        """
        budgets = list(self._upwards())
        for each in budgets:
            limit = each._limits.tool_calls
            if limit is not None and each._tool_calls >= limit:
                raise BudgetExhausted(
                    f"All {limit} tool calls are used up. Answer with what is known."
                )
        for each in budgets:
            each._tool_calls += 1

    @contextmanager
    def reserved_tokens(self, estimate: int) -> Iterator[TokenUse]:
        """Hold tokens for a question to a model; afterwards those that it took count.

        Args:
            estimate: How many it will take at least.

        Raises:
            BudgetExhausted: There are fewer left, here or above.
        """
        budgets = list(self._upwards())
        for each in budgets:
            limit = each._limits.tokens
            if limit is not None and each._tokens + estimate > limit:
                raise BudgetExhausted(f"The {limit} tokens are used up.")
        for each in budgets:
            each._tokens += estimate
        use = TokenUse(estimate)
        try:
            yield use
        finally:
            for each in budgets:
                each._tokens += use.tokens - estimate

    def _upwards(self) -> Iterator[Budget]:
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget._above


@dataclass
class TokenUse:
    """How many tokens a question took; the estimate, until it is known."""

    tokens: int
