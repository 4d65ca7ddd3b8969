"""Postgres returns the records, trees and lists that are computed in Python from the events."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.generated_runs import START, Batches, retold_forests
from tests.contract.reference import Reference
from tests.contract.stores import NewStore, Store, content, tree
from tests.profiles import scaled
from tests.trees import Node, plain, read_tree
from tracer.lineage import Payloads
from tracer.lineage.tree import UNSTORED
from tracer.records import Kind
from tracer.records.events import Event
from tracer.records.pages import RunOrder
from tracer.storage.memory import recording_in_memory
from tracer.store import RunFilter, ToolCallFilter

RUN_FILTERS = [
    RunFilter(),
    RunFilter(status="running"),
    RunFilter(status="unknown"),
    RunFilter(status="abandoned"),
    RunFilter(agent="a"),
    RunFilter(agent=""),
    RunFilter(tool="tool 1"),
    RunFilter(session="a"),
    RunFilter(session="\0", subject="é"),
    RunFilter(subject=""),
    RunFilter(subject="é", until=START.replace(microsecond=3000)),
    RunFilter(tag="a"),
    RunFilter(tag="\0", session="a"),
    RunFilter(service="b\0"),
    RunFilter(service_version="1"),
    RunFilter(environment="é", service="a"),
    RunFilter(min_cost=0.0),
    RunFilter(min_cost=0.2),
    RunFilter(since=START.replace(microsecond=3000)),
    RunFilter(until=START.replace(microsecond=3000)),
]
CALL_FILTERS = [
    ToolCallFilter(),
    ToolCallFilter(name="tool 2"),
    ToolCallFilter(status="failed"),
    ToolCallFilter(provider_call_id=""),
    ToolCallFilter(since=START.replace(microsecond=3000)),
]


MOST_LISTS = scaled(200)
"""How many lists an example reads: all of them, or in the quick profile a random few."""


@settings(max_examples=scaled(25))
@given(forest=retold_forests(), seed=st.integers(0, 2**16))
async def test_lists_contain_the_records_that_match_in_their_order(
    new_postgres_store: NewStore, forest: tuple[list[Event], Batches], seed: int
) -> None:
    store, expected = new_postgres_store(), Reference(forest[1])
    for batch in forest[1]:
        await store.record(*batch)
    lists = [*product(RUN_FILTERS, RunOrder)]
    for runs_wanted, order in random.Random(seed).sample(lists, min(len(lists), MOST_LISTS)):
        runs = [run.root_plan_id for run in expected.list_runs(runs_wanted, order)]
        assert await run_ids(store, runs_wanted, order) == runs, (runs_wanted, order)
    for wanted in CALL_FILTERS:
        calls = [call.tool_call_id for call in expected.list_tool_calls(wanted)]
        assert await call_ids(store, wanted) == calls, wanted


@settings(max_examples=scaled(25))
@given(forest=retold_forests())
async def test_records_and_trees_are_those_of_the_merged_events(
    new_postgres_store: NewStore, forest: tuple[list[Event], Batches]
) -> None:
    store, recording = new_postgres_store(), recording_in_memory()
    for batch in forest[1]:
        await store.record(*batch)
        await recording.write(batch)
    reader = store.reader
    for run_id in {event.root_plan_id for event in recording.events}:
        found = await read_tree(reader, run_id, Payloads.FULL)
        assert replace(found, revision=UNSTORED) == (
            await read_tree(recording, run_id, Payloads.FULL)
        )
        assert without_revision(await tree(store, run_id)) == plain(recording.tree(run_id))
        for plan in recording.records(Kind.PLAN, run_id):
            assert content((await reader.read_plan(plan.plan_id)).plan) == content(plan)
        for round_ in recording.records(Kind.THINK_ACT, run_id):
            assert content(await reader.read_think_act(round_.think_act_id)) == content(round_)
        for call in recording.records(Kind.TOOL_CALL, run_id):
            assert content((await reader.read_tool_call(call.tool_call_id)).call) == content(call)


def without_revision(top: Node) -> Node:
    return {**top, "revision": 0}


async def run_ids(store: Store, wanted: RunFilter, order: RunOrder) -> list[UUID]:
    """Return the ids of a list that is read in pages of one run."""
    found: list[UUID] = []
    cursor = None
    while not found or cursor is not None:
        page = await store.reader.list_runs(wanted, 1, cursor, order)
        found += [run.root_plan_id for run in page.items]
        cursor = page.next_cursor
        if not page.items:
            break
    return found


async def call_ids(store: Store, wanted: ToolCallFilter) -> list[UUID]:
    """Return the ids of a list that is read in pages of three calls."""
    found: list[UUID] = []
    cursor = None
    while not found or cursor is not None:
        page = await store.reader.list_tool_calls(wanted, 3, cursor)
        found += [call.tool_call_id for call in page.items]
        cursor = page.next_cursor
        if not page.items:
            break
    return found
