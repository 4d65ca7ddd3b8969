"""Budgets form a tree, and no budget in it is ever exceeded."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import BudgetExhausted, RegistrationError
from tracer.tools import BudgetLimits
from tracer.tools.run import Budget


@given(
    st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=30),
)
def test_call_is_refused_if_any_budget_above_it_is_used_up(
    limits: list[int | None], uses: list[int]
) -> None:
    path = [Budget(BudgetLimits(tool_calls=limits[0]))]
    for limit in limits[1:]:
        path.append(Budget(BudgetLimits(tool_calls=limit), path[-1]))
    used = [0] * len(path)
    for level in (each for each in uses if each < len(path)):
        above = range(level + 1)
        fits = all(limits[n] is None or used[n] < (limits[n] or 0) for n in above)
        if fits:
            path[level].reserve_tool_call()
            for n in above:
                used[n] += 1
        else:
            with pytest.raises(BudgetExhausted):
                path[level].reserve_tool_call()

    for limit, number in zip(limits, used, strict=True):
        assert limit is None or number <= limit


async def ask(budget: Budget, prompt: int, answer: int) -> None:
    async with budget.reserved_tokens(prompt) as use:
        await asyncio.sleep(0)
        use.tokens = prompt + answer


async def test_model_calls_are_serial_until_the_first_cost_is_known() -> None:
    above = Budget(BudgetLimits(tokens=100))
    below = Budget(BudgetLimits(), above)
    async with above.reserved_tokens(50) as use:
        waiting = asyncio.create_task(ask(below, 10, answer=5))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        use.tokens = 60
    await waiting
    await ask(below, 15, answer=10)
    with pytest.raises(BudgetExhausted, match="100 tokens"):
        await ask(below, 1, answer=1)


async def test_failed_model_call_counts_with_its_estimated_tokens() -> None:
    budget = Budget(BudgetLimits(tokens=10))
    with pytest.raises(ValueError, match="away"):
        async with budget.reserved_tokens(6):
            raise ValueError("away")
    with pytest.raises(BudgetExhausted):
        await ask(budget, 5, answer=0)


@given(
    limit=st.integers(0, 200),
    answer=st.integers(1, 60),
    prompts=st.lists(st.integers(0, 60), max_size=12),
)
async def test_parallel_model_calls_of_equal_cost_stay_within_the_token_budget(
    limit: int, answer: int, prompts: list[int]
) -> None:
    root = Budget(BudgetLimits(tokens=limit))
    taken = 0

    async def one(prompt: int) -> None:
        nonlocal taken
        await ask(Budget(BudgetLimits(), root), prompt, answer)
        taken += prompt + answer

    ended = await asyncio.gather(*map(one, prompts), return_exceptions=True)

    assert all(each is None or isinstance(each, BudgetExhausted) for each in ended)
    # The first answer's length nobody knows.
    assert taken <= max(limit, max(prompts, default=0) + answer)


@pytest.mark.parametrize("name", ["tool_calls", "tokens", "seconds"])
def test_negative_budget_is_rejected(name: str) -> None:
    with pytest.raises(RegistrationError):
        BudgetLimits(**{name: -1})
