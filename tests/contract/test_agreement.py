"""The memory store and Postgres return the same for every read."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.generated_runs import START, Batches, retold_forests
from tests.contract.stores import NewStore, Store, memory_stores, tree
from tests.profiles import scaled
from tests.trees import read_tree
from tracer.errors import TracerError
from tracer.lineage.tree import Payloads
from tracer.records.events import Event
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
    RunFilter(q="TOOL"),
    RunFilter(q="%_\\"),
    RunFilter(q="é"),
    RunFilter(q="\0"),
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


MOST_QUESTIONS = scaled(10_000)
"""How many questions an example asks: all of them, or in the quick profile a random few."""


@settings(max_examples=scaled(25))
@given(forest=retold_forests(), seed=st.integers(0, 2**16))
async def test_memory_and_postgres_store_return_the_same_for_any_read(
    new_postgres_store: NewStore, forest: tuple[list[Event], Batches], seed: int
) -> None:
    postgres, memory = new_postgres_store(), memory_stores()()
    for batch in forest[1]:
        assert await postgres.writer.write(batch) == await memory.writer.write(batch)
    asked = questions(forest[0])
    for ask in random.Random(seed).sample(asked, min(len(asked), MOST_QUESTIONS)):
        assert await answer(ask, postgres) == await answer(ask, memory)


Question = Callable[[Store], Awaitable[Any]]


async def answer(ask: Question, store: Store) -> Any:
    try:
        return comparable(await ask(store))
    except TracerError as error:
        return type(error), str(error)


def comparable(answer: Any) -> Any:
    """Return an answer without the id of the project and the time of the last sign of life."""
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    if hasattr(answer, "model_dump"):
        return answer.model_dump(exclude={"project_id", "seen_at"})
    if hasattr(answer, "__dataclass_fields__"):
        return {name: comparable(getattr(answer, name)) for name in answer.__dataclass_fields__}
    return answer


def questions(events: list[Event]) -> list[Question]:
    """Return everything that can be asked about the ids that the events name."""
    ids = {
        value
        for event in events
        for field in type(event).model_fields
        for value in [getattr(event, field)]
        if isinstance(value, UUID)
    }
    asked: list[Question] = [
        partial(ask, id_=id_)
        for id_ in sorted(ids)
        for ask in (read_run, read_plan, read_think_act, read_tool_call, read_trees)
    ]
    asked += [partial(pages_of_runs, wanted=wanted) for wanted in RUN_FILTERS]
    asked += [partial(pages_of_calls, wanted=wanted) for wanted in CALL_FILTERS]
    asked.append(lambda store: store.reader.find_cancel_requests(ids))
    asked.append(lambda store: store.reader.list_exchanges(sorted(ids)))
    return asked


async def read_run(store: Store, id_: UUID) -> Any:
    return await store.reader.read_run(id_)


async def read_plan(store: Store, id_: UUID) -> Any:
    return await store.reader.read_plan(id_)


async def read_think_act(store: Store, id_: UUID) -> Any:
    return await store.reader.read_think_act(id_)


async def read_tool_call(store: Store, id_: UUID) -> Any:
    return await store.reader.read_tool_call(id_)


async def read_trees(store: Store, id_: UUID) -> Any:
    rows = [await read_tree(store.reader, id_, payloads) for payloads in Payloads]
    return [rows, await tree(store, id_)]


async def pages_of_runs(store: Store, wanted: RunFilter) -> list[Any]:
    pages: list[Any] = []
    cursor = None
    while not pages or cursor is not None:
        page = await store.reader.list_runs(wanted, 1, cursor)
        pages.append(page)
        cursor = page.next_cursor
    return pages


async def pages_of_calls(store: Store, wanted: ToolCallFilter) -> list[Any]:
    pages: list[Any] = []
    cursor = None
    while not pages or cursor is not None:
        page = await store.reader.list_tool_calls(wanted, 3, cursor)
        pages.append(page)
        cursor = page.next_cursor
    return pages
