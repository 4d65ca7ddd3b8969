"""Outlines keep their budget, show what matters first, and quote recorded texts."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions.failing_runs import HANDLED, failing_run
from tests.questions.random_trees import SHAPES, random_tree
from tracer.errors import BadRequest
from tracer.lineage.tree import PlanNode
from tracer.questions import outline
from tracer.questions.text import LEAST_BUDGET, TOKEN_BYTES
from tracer.storage.memory import RecordingInMemory


def size_in_tokens(text: str) -> float:
    return len(text.encode()) / TOKEN_BYTES


def has_control_characters(text: str) -> bool:
    return any(
        unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char != "\n" for char in text
    )


def check(tree: PlanNode, budget: int) -> None:
    found = outline(tree, budget)
    text = found.text()

    assert size_in_tokens(text) <= budget
    assert not has_control_characters(text)
    folded = sum(sum(line.folded.records.values()) for line in found.lines if line.folded)
    assert len(found.lines) + folded == found.records


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 400),
    shape=st.sampled_from(SHAPES),
    budget=st.integers(LEAST_BUDGET, 5_000),
)
def test_outline_of_any_tree_keeps_its_budget(
    seed: int, size: int, shape: str, budget: int
) -> None:
    check(random_tree(seed, size, shape), budget)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 10_000, pytest.param(100_000, marks=pytest.mark.thorough)])
def test_outline_of_a_large_tree_keeps_every_budget(shape: str, size: int) -> None:
    tree = random_tree(size, size, shape)

    for budget in (LEAST_BUDGET, 1_000, 8_000):
        check(tree, budget)


@pytest.mark.parametrize("budget", [LEAST_BUDGET, 1_000])
def test_origin_of_the_failure_is_shown_before_other_failures(budget: int) -> None:
    run = failing_run(1, 600)
    store = RecordingInMemory()
    store.events += run.events
    tree = store.tree(run.root)
    assert len(tree.failure_origins or ()) == HANDLED + 1

    assert str(run.origin) in {line.id for line in outline(tree, budget).lines}


def test_budget_below_the_least_is_rejected() -> None:
    with pytest.raises(BadRequest, match="at least 300 tokens"):
        outline(random_tree(1, 1, "flat"), LEAST_BUDGET - 1)
