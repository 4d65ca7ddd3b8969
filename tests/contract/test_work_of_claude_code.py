"""One prompt of a person is one row, although each report of a background agent is a trace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import pytest

from tests.contract.stores import NewStore, Store
from tests.otel.coding_agents.captured import Message, messages_of, single
from tests.otel.coding_agents.test_claude_code import truth_run
from tests.otel.coding_agents.test_claude_code_background import (
    NAMES,
    TURNS,
    in_one_trace,
    without_content,
)
from tests.profiles import quick_among
from tests.trees import plain
from tracer import questions
from tracer.lineage import Payloads, build_tree
from tracer.records.pages import RunPreview
from tracer.records.spans import TraceSpans
from tracer.store import RunFilter

PARALLEL = "claude-code-2.1.332-parallel-content-on"
NESTED = "claude-code-2.1.332-nested-content-on"
KINDS = [
    (name, word)
    for name in NAMES
    for word in ("on", "off")
    # Without content, nothing says that an agent which waits for its own command has reported.
    if word == "on" or "failing" not in name
]
ORDERS = {"in-order": 10, "reversed": 10, "shuffled": 10, "one-at-a-time": 1}
"""How many items arrive at once."""
QUICK = ((PARALLEL, "off"), (TURNS, "on"))


@pytest.fixture
def new_store(new_postgres_store: NewStore) -> NewStore:
    return new_postgres_store


async def arrive(store: Store, messages: Sequence[Message], at_once: int = 1_000) -> None:
    """Let so many items arrive at once, and derive the links each time."""
    for begin in range(0, len(messages), at_once):
        items = [TraceSpans(*each, 1) for each in messages[begin : begin + at_once]]
        assert (await store.writer.write_spans(items)).refused == []
        await store.link()


async def rows_of(store: Store, *, all_parts: bool = False) -> list[RunPreview]:
    page = await store.reader.list_runs(RunFilter(all_parts=all_parts), 20, None)
    return page.items[::-1]


@pytest.mark.parametrize("order", quick_among(ORDERS, ["shuffled"]))
@pytest.mark.parametrize("kind", quick_among(KINDS, QUICK), ids=" ".join)
async def test_each_prompt_of_a_person_is_one_row(
    store: Store, kind: tuple[str, str], order: str
) -> None:
    name, content = kind
    truth = truth_run(name)
    change = single if content == "on" else without_content
    messages = change(messages_of(name))
    if order == "reversed":
        messages.reverse()
    elif order == "shuffled":
        random.Random(0).shuffle(messages)
    await arrive(store, messages, ORDERS[order])

    found = await rows_of(store)

    people = [each for each in truth["prompts"] if each["kind"] == "user"]
    of_person = [each["user_prompt"] for each in truth["prompts"]]
    assert [run.parts for run in found] == [of_person.count(each["prompt"]) for each in people]
    texts = [each["text"] if content == "on" else None for each in people]
    assert [run.request for run in found] == texts
    if truth["killed"]:
        return
    assert {run.status for run in found} == {"succeeded"}
    assert sum((run.cost_usd for run in found), Decimal(0)) == pytest.approx(
        Decimal(truth["total_cost_usd"]), abs=Decimal("1e-9")
    )
    if content == "on":
        assert found[-1].answer == truth["final_answer"]


async def test_nested_agents_of_all_parts_are_in_one_tree(store: Store) -> None:
    await arrive(store, single(messages_of(NESTED)))
    [run] = await rows_of(store)

    rows = await store.reader.read_tree(run.root_plan_id, Payloads.NONE)
    tree = build_tree(rows, str(run.root_plan_id))

    shown = str(plain(tree))
    for agent in truth_run(NESTED)["sub_agents"]:
        assert agent["opened_by"]["provider_call_id"] in shown
    assert truth_run(NESTED)["prompts"][1]["notifications"][0]["summary"] in shown
    assert run.parts > 1
    assert run.finished_at is not None
    assert run.started_at is not None
    whole = (run.finished_at - run.started_at).total_seconds() * 1000
    why = questions.explain(questions.target_of(tree), 1_000)
    for answer in (questions.outline(tree, 1_000), why):
        assert answer.duration_ms == pytest.approx(whole, abs=1)


async def test_prompts_below_a_traceparent_are_one_row(store: Store) -> None:
    await arrive(store, in_one_trace(messages_of(TURNS)))

    [run] = await rows_of(store)
    assert (run.parts, await rows_of(store, all_parts=True)) == (1, [run])


async def test_two_projects_and_two_sessions_with_equal_ids_are_not_linked(
    new_store: NewStore,
) -> None:
    messages = single(messages_of(PARALLEL))
    traces = sorted({trace_id for trace_id, _ in messages})
    session = truth_run(PARALLEL)["session_id"].encode()
    other_traces = {each: bytes([each[0] ^ 255]) + each[1:] for each in traces}

    def of_another_session(message: Message) -> Message:
        trace_id, part = message
        for each, other in other_traces.items():
            part = part.replace(each, other)
        return other_traces[trace_id], part.replace(session, session[::-1])

    one, other = new_store(), new_store()
    again = [of_another_session(each) for each in messages]
    mixed = [each for pair in zip(messages, again, strict=True) for each in pair]
    await arrive(one, mixed)
    # Each project has a half: what is needed for a link is in the other one.
    half = len(messages) // 2
    await arrive(other, messages[:half])
    third = new_store()
    await arrive(third, messages[half:])

    rows = await rows_of(one)
    assert [run.parts for run in rows] == [4, 4]
    sessions = {run.root_plan_id: run.session_id for run in rows}
    for part in await rows_of(one, all_parts=True):
        assert part.session_id == sessions[part.head_id or part.root_plan_id]
    await other.link()
    own = {run.root_plan_id for run in await rows_of(third, all_parts=True)}
    for part in await rows_of(third, all_parts=True):
        assert {part.head_id, part.continues_run_id} <= {None, *own}
