"""The changes of a run, applied to records read earlier, give the current records."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from tests.contract.generated_runs import Batches, retold_forests
from tests.contract.moments import Moments
from tests.contract.stores import NewStore, Store
from tests.otel.captured import spans_of
from tests.otel.made_traces import TRACE_ID, agent, make_span, spans_from, tool
from tests.profiles import scaled
from tests.sample_runs import sample_run
from tests.trees import Node, plain_row, read_tree
from tracer.errors import RecordNotFound, RunNotActive
from tracer.lineage import Payloads, Row
from tracer.records import Kind, new_id
from tracer.records.events import Event
from tracer.records.merge import RULES
from tracer.store import RunChanges

PLENTY = 100_000

ID_NAMES = {kind: to_camel(rules.id_field) for kind, rules in RULES.items()}


def id_of(row: Row) -> str:
    return str(getattr(row, RULES[row.kind].id_field))


class Watched:
    """A run as somebody has it who folds in what changed."""

    def __init__(self, root: UUID) -> None:
        self.root = root
        self.revision = 0
        self.rows: dict[tuple[Kind, str], Node] = {}
        self.removed = 0

    async def catch_up(self, store: Store) -> None:
        changes = await store.reader.read_changes(self.root, self.revision, PLENTY)
        assert not changes.is_reset
        for kind, record_id in changes.removed:
            self.removed += self.rows.pop((kind, str(record_id)), None) is not None
        for row in changes.changed:
            self.rows[row.kind, id_of(row)] = plain_row(row)
        self.revision = changes.revision


async def read_rows(store: Store, root: UUID) -> dict[tuple[Kind, str], Node]:
    rows = await read_tree(store.reader, root, Payloads.PREVIEW)
    return {
        (kind, row[ID_NAMES[kind]]): {"kind": kind, **row}
        for kind, part in (
            (Kind.PLAN, rows.plans),
            (Kind.STEP, rows.steps),
            (Kind.THINK_ACT, rows.think_acts),
            (Kind.TOOL_CALL, rows.tool_calls),
        )
        for row in part
    }


async def changed_since(store: Store, root: UUID, after: int, limit: int = PLENTY) -> RunChanges:
    return await store.reader.read_changes(root, after, limit)


@settings(max_examples=scaled(50))
@given(forest=retold_forests(), seed=st.integers(0, 2**16))
async def test_changes_applied_to_old_records_give_the_final_tree(
    new_store: NewStore, forest: tuple[list[Event], Batches], seed: int
) -> None:
    store, chance = new_store(), random.Random(seed)
    watched: dict[UUID, Watched] = {}
    for batch in forest[1]:
        await store.record(*batch)
        for event in batch:
            watched.setdefault(event.root_plan_id, Watched(event.root_plan_id))
        for each in watched.values():
            if chance.random() < 0.5:
                await each.catch_up(store)
    for each in watched.values():
        await each.catch_up(store)
        assert each.rows == await read_rows(store, each.root)
        assert each.revision == (await store.reader.read_run(each.root)).revision


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("langgraph-openinference-single", 0),
        *(
            pytest.param(name, seed, marks=pytest.mark.thorough)
            for name, seeds in (
                ("langgraph-openinference-single", (1, 2)),
                ("openai-agents-openinference-single", (0, 1, 2)),
                ("openai-agents-openinference-concurrent", (0, 1, 2)),
            )
            for seed in seeds
        ),
    ],
)
async def test_records_that_later_spans_remove_are_reported_as_removed(
    new_store: NewStore, name: str, seed: int
) -> None:
    store = new_store()
    chance = random.Random(seed)
    spans = spans_of(name)
    watched = {
        root: [Watched(root) for _ in range(3)]
        for root in {UUID(bytes=span.trace_id) for span in spans}
    }
    chance.shuffle(spans)
    arrived: set[UUID] = set()
    while spans:
        batch = [spans.pop() for _ in range(min(len(spans), chance.randint(1, 6)))]
        await store.record_spans(batch)
        arrived |= {UUID(bytes=span.trace_id) for span in batch}
        for root in arrived:
            for each in watched[root]:
                if chance.random() < 0.5:
                    await each.catch_up(store)
    for root, watchers in watched.items():
        for each in watchers:
            await each.catch_up(store)
            assert each.rows == await read_rows(store, root)
    assert any(each.removed for watchers in watched.values() for each in watchers)


async def test_removed_record_that_exists_again_is_reported_as_changed(store: Store) -> None:
    first, unfinished = tool(3, "measure", parent=2), make_span(2, "group", at=(0, None), parent=1)
    finished = agent(2, "nurse", parent=1)
    root = UUID(TRACE_ID)
    from_the_start, late = Watched(root), Watched(root)
    seen: list[set[tuple[Kind, str]]] = []
    for span in (first, unfinished, finished):
        await store.record_spans(spans_from(agent(1, "planner"), span))
        await from_the_start.catch_up(store)
        if span is first:
            await late.catch_up(store)
        seen.append(set(from_the_start.rows))
    assert (seen[0] & seen[2]) - seen[1], "nothing came back"

    changes = await changed_since(store, root, late.revision)
    await late.catch_up(store)

    changed_rows = {(row.kind, id_of(row)) for row in changes.changed}
    assert not changed_rows & {(kind, str(record_id)) for kind, record_id in changes.removed}
    assert late.rows == from_the_start.rows == await read_rows(store, root)


async def test_changes_since_the_latest_revision_are_empty(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events)
    now = (await store.reader.read_run(run.root)).revision

    assert await changed_since(store, run.root, now) == RunChanges(now)


async def test_only_changed_records_are_reported(store: Store) -> None:
    run = sample_run(sub_plans=1)
    await store.record(*run.events[:-3])
    before = (await store.reader.read_run(run.root)).revision
    await store.record(*run.events)

    changes = await changed_since(store, run.root, before)

    changed_rows = [(row.kind, row.status) for row in changes.changed]
    assert changed_rows == [
        (Kind.PLAN, "succeeded"),
        (Kind.STEP, "succeeded"),
        (Kind.TOOL_CALL, "succeeded"),
    ]
    assert changes.removed == []


async def test_cancel_request_raises_the_revision_without_changed_records(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    before = (await store.reader.read_run(run.root)).revision
    await store.writer.request_cancel(run.root)

    assert await changed_since(store, run.root, before) == RunChanges(before + 1)


async def test_changes_since_a_revision_too_old_or_too_new_are_a_reset(store: Store) -> None:
    run = sample_run(sub_plans=2)
    await store.record(*run.events)
    now = (await store.reader.read_run(run.root)).revision
    size = len(await read_rows(store, run.root))

    assert len((await changed_since(store, run.root, 0, limit=size)).changed) == size
    assert await changed_since(store, run.root, 0, size - 1) == RunChanges(now, is_reset=True)
    assert await changed_since(store, run.root, now + 1) == RunChanges(now, is_reset=True)


async def test_changes_contain_previews_of_long_strings(store: Store) -> None:
    run = Moments()
    await store.record(run.call_finished(result="x" * 5000))

    changes = await changed_since(store, run.root, 0)

    [call] = [plain_row(row) for row in changes.changed if row.kind is Kind.TOOL_CALL]
    assert (len(call["result"]), call["resultBytes"], call["resultTruncated"]) == (2048, 5000, True)


async def test_changes_of_a_missing_run_raise_not_found(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)

    for root in (run.root, new_id()):
        with pytest.raises(RecordNotFound):
            await changed_since(store, root, 0)
        with pytest.raises(RecordNotFound):
            await store.reader.read_revision(Kind.RUN, root)
    assert await store.reader.read_revisions([run.root, new_id()]) == {}


async def test_read_revision_of_any_record_returns_the_revision_of_its_run(store: Store) -> None:
    run = sample_run()
    await store.record(*run.events)
    await store.record(*sample_run().events)
    stored = await store.reader.read_run(run.root)

    ids: dict[Kind, Any] = {
        Kind.RUN: run.root,
        Kind.PLAN: run.sub_plans[0],
        Kind.STEP: run.step,
        Kind.THINK_ACT: run.think_act,
        Kind.TOOL_CALL: run.failed_call,
    }
    for kind, record_id in ids.items():
        found = await store.reader.read_revision(kind, record_id)
        assert (found.root_plan_id, found.number) == (run.root, stored.revision)
        assert found.recorded_at == stored.recorded_at
        with pytest.raises(RecordNotFound):
            await store.reader.read_revision(kind, new_id())
    assert await store.reader.read_revisions([run.root]) == {run.root: stored.revision}


async def test_every_change_of_a_run_raises_its_revision(store: Store) -> None:
    run = Moments()
    seen = []
    for event in (run.plan_started(), run.call_started(), run.call_finished()):
        await store.record(event)
        seen.append((await store.reader.read_revision(Kind.RUN, run.root)).number)
    await store.writer.request_cancel(run.root)
    seen.append((await store.reader.read_revision(Kind.RUN, run.root)).number)
    await store.record(run.plan_finished())
    with pytest.raises(RunNotActive):
        await store.writer.request_cancel(run.root)
    seen.append((await store.reader.read_revision(Kind.RUN, run.root)).number)

    assert sorted(set(seen)) == seen
