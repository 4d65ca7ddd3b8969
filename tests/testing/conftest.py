"""Runs in memory, recorded by hand from a short notation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tracer
from tracer.client import Tracing
from tracer.reading import Run
from tracer.storage.memory import process_memory
from tracer.testing.plugin import flush

Made = tuple[Any, ...]
"""A call: name, arguments, and the rounds of the agent that it opens, if it opens one."""
Record = Callable[..., Run]


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracing]:
    """A connection that records in memory."""
    monkeypatch.setenv("TRACER_URL", "memory:")
    process_memory.clear()
    with tracer.connect() as tracing:
        yield tracing


@pytest.fixture
def record(tracing: Tracing) -> Record:
    """Returns a function that records a run of the agent `billing`, given its rounds."""

    def run(*rounds: list[Made], cost: float | None = None) -> Run:
        process_memory.clear()
        record_by_hand(tracing, "billing", rounds, cost)
        flush()
        [tree] = process_memory.trees()
        return Run.of(tree)

    return run


def record_by_hand(
    tracing: Tracing, agent: str, rounds: tuple[list[Made], ...], cost: float | None = None
) -> str:
    """Record a run with the given rounds, and return the id of its root plan."""
    with tracing.plan("Refund INV-42", agent=agent) as plan:
        for each in rounds:
            with tracing.think_act([], model="none") as thought:
                chosen = [tracer.Chosen(name, json.dumps(given)) for name, given, *_ in each]
                calls = thought.finish(
                    input_tokens=10, output_tokens=5, cost_usd=cost, tool_calls=chosen
                )
            for call, (_, _, *below) in zip(calls, each, strict=True):
                with call:
                    if below:
                        record_by_hand(tracing, "bookkeeper", below[0], cost)
                    call.finish("done")
        plan.finish("done")
    return str(plan.plan_id)
