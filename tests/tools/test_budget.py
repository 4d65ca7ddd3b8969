"""Budgets: a tree, none of which is ever overdrawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.errors import BudgetExhausted, RegistrationError
from tracer.tools.budget import Budget, BudgetLimits


@given(
    st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=30),
)
def test_no_budget_of_a_path_is_ever_overdrawn(limits: list[int | None], uses: list[int]) -> None:
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


def test_tokens_are_held_while_a_model_is_asked_and_then_those_that_it_took_count() -> None:
    above = Budget(BudgetLimits(tokens=100))
    below = Budget(BudgetLimits(), above)
    with above.reserved_tokens(60) as use:
        with pytest.raises(BudgetExhausted, match="100 tokens"), below.reserved_tokens(41):
            pass
        with below.reserved_tokens(40):
            pass
        use.tokens = 10
    with below.reserved_tokens(50):
        pass
    with pytest.raises(BudgetExhausted), below.reserved_tokens(1):
        pass


def test_a_question_that_broke_counts_as_estimated() -> None:
    budget = Budget(BudgetLimits(tokens=10))
    with pytest.raises(ValueError, match="away"), budget.reserved_tokens(6):
        raise ValueError("away")
    with pytest.raises(BudgetExhausted), budget.reserved_tokens(5):
        pass


@pytest.mark.parametrize("name", ["tool_calls", "tokens", "seconds"])
def test_less_than_nothing_is_no_budget(name: str) -> None:
    with pytest.raises(RegistrationError):
        BudgetLimits(**{name: -1})
