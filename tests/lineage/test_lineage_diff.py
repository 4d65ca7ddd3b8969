"""Comparing two trees: each record occurs once, in order, and both directions agree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.generated_runs import forests
from tests.contract.moments import START, Moments
from tests.otel.made_traces import agent, spans_from, tool
from tests.profiles import scaled
from tests.recordings import compared_tree, messages_of, rows_of_spans
from tests.sample_runs import SampleRun, sample_run
from tests.trees import plain
from tracer.lineage.diff import aligned, aligned_in_any_order, diff_trees, digest_of, new_messages
from tracer.lineage.tree import PlanNode
from tracer.records import Reason, Status, new_id, sequential_ids
from tracer.records.events import (
    ChosenToolCall,
    ErrorInfo,
    Event,
    ThoughtRecorded,
    ToolCallFinished,
)
from tracer.records.spans import Span
from tracer.storage.memory import recording_in_memory

Entry = Any


async def trees(*runs: list[Event]) -> list[PlanNode]:
    """Return the trees of runs. Each has its own recording, because their ids may be the same."""
    found = []
    for events in runs:
        recording = recording_in_memory()
        await recording.write(events)
        found.append(compared_tree(recording.rows(events[0].root_plan_id)))
    return found


def walked(diff: Entry) -> Iterator[Entry]:
    waiting = [diff["root"]]
    while waiting:
        entry = waiting.pop()
        yield entry
        waiting += reversed(entry["children"])


def ids_of(top: PlanNode) -> list[str]:
    id_names = ("toolCallId", "thinkActId", "stepId", "planId")
    by_kind = dict(zip(("toolCall", "thinkAct", "step", "plan"), id_names, strict=True))
    found, waiting = [], [plain(top)]
    while waiting:
        node = waiting.pop()
        found.append(node[by_kind[node["kind"]]])
        for children in ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced"):
            waiting += node.get(children, [])
    return sorted(found)


def side_ids(diff: Entry, side: str) -> list[str]:
    return sorted(entry[side]["id"] for entry in walked(diff) if entry[side] is not None)


def mirrored(entry: Entry) -> Entry:
    change = {"added": "removed", "removed": "added"}.get(entry["change"], entry["change"])
    children = [mirrored(child) for child in entry["children"]]
    left, right = entry["right"], entry["left"]
    return {**entry, "left": left, "right": right, "change": change, "children": children}


def in_one_order(entry: Entry) -> Entry:
    """Return an entry without names and order, which depend on which run is the left one."""
    children = sorted(map(in_one_order, entry["children"]), key=repr)
    return {**entry, "name": None, "change": str(entry["change"]), "children": children}


two_runs = st.tuples(forests(runs=1), forests(runs=1)).filter(lambda runs: all(runs))


@settings(max_examples=scaled(30))
@given(runs=two_runs)
async def test_a_diff_contains_every_record_of_both_runs_once(
    runs: tuple[list[Event], list[Event]],
) -> None:
    left, right = await trees(*runs)
    expected = ids_of(left), ids_of(right)

    diff = diff_trees(left, right)

    assert (side_ids(diff, "left"), side_ids(diff, "right")) == expected
    assert Counter(str(entry["change"]) for entry in walked(diff)) == +Counter(diff["counts"])
    for entry in walked(diff):
        assert (entry["change"] == "added") is (entry["left"] is None)
        assert (entry["change"] == "removed") is (entry["right"] is None)
        assert (entry["change"] == "changed") is (entry["differs"] != [])
        below = [*walked({"root": entry})][1:]
        assert entry["changedBelow"] == sum(each["change"] != "same" for each in below)


@settings(max_examples=scaled(30))
@given(events=forests(runs=1).filter(bool))
async def test_a_run_has_no_differences_from_itself(events: list[Event]) -> None:
    diff = diff_trees(*await trees(events, events))

    for entry in walked(diff):
        assert (entry["change"], entry["differs"]) == ("same", [])
        assert entry["left"]["id"] == entry["right"]["id"]


@settings(max_examples=scaled(30))
@given(runs=two_runs)
async def test_diff_of_swapped_runs_is_mirrored(
    runs: tuple[list[Event], list[Event]],
) -> None:
    left, right = await trees(*runs)
    there, back = diff_trees(left, right), diff_trees(right, left)

    assert in_one_order(mirrored(back["root"])) == in_one_order(there["root"])
    assert back["left"] == there["right"]


words = st.lists(st.sampled_from("abc"), max_size=12)


@given(left=words, right=words)
def test_diff_preserves_the_order_of_both_runs(left: list[str], right: list[str]) -> None:
    def key(word: str) -> tuple[object, ...]:
        return (word,)

    pairs = aligned(left, right, [key])

    assert [a for a, _ in pairs if a is not None] == left
    assert [b for _, b in pairs if b is not None] == right
    assert all(a == b for a, b in pairs if a is not None and b is not None)
    turned = [(b, a) for a, b in pairs if a is not None and b is not None]
    back = aligned(right, left, [key])
    assert [(a, b) for a, b in back if a is not None and b is not None] == turned


def again(**more: Any) -> tuple[SampleRun, SampleRun]:
    """Return two runs that differ only in their ids."""
    one = sample_run(**more)
    ids = sequential_ids()
    other = sample_run(ids=ids, **more)
    return one, other


def changes(diff: Entry) -> list[tuple[str, str | None, str, list[str]]]:
    return [
        (str(e["kind"]), e["name"], str(e["change"]), [str(d) for d in e["differs"]])
        for e in walked(diff)
        if e["change"] != "same"
    ]


async def test_runs_that_differ_only_in_ids_have_no_differences() -> None:
    one, other = again(sub_plans=3)

    diff = diff_trees(*await trees(one.events, other.events))

    assert changes(diff) == []
    assert diff["counts"] == {"added": 0, "removed": 0, "changed": 0, "same": 10}
    assert (diff["left"]["rootPlanId"], diff["right"]["rootPlanId"]) == (
        str(one.root),
        str(other.root),
    )


async def test_diff_shows_only_the_additional_sub_plan() -> None:
    one, other = sample_run(sub_plans=2), sample_run(sub_plans=3)

    diff = diff_trees(*await trees(one.events, other.events))

    assert changes(diff) == [
        ("toolCall", "check", "added", []),
        ("plan", "Check 2", "added", []),
    ]
    assert diff["root"]["changedBelow"] == 2


async def test_diff_shows_status_and_result_of_a_call_that_failed_in_one_run() -> None:
    one, other = again(sub_plans=1)
    [end] = [e for e in other.events if isinstance(e, ToolCallFinished) and e.result == "well"]
    outcome = {"status": Status.FAILED, "reason": Reason.TOOL_ERROR, "result": None}
    failed = end.model_copy(update=outcome)
    events = [failed if event is end else event for event in other.events]

    diff = diff_trees(*await trees(one.events, events))

    assert changes(diff) == [("toolCall", "check", "changed", ["outcome", "result"])]


def test_diff_shows_errors_of_which_only_the_messages_differ() -> None:
    def failing(message: str) -> list[Span]:
        return spans_from(agent(1, "nurse"), tool(2, "measure", parent=1, failed=message))

    messages = ("the cuff is loose", "é" * 400)
    found = [compared_tree(rows_of_spans(failing(message))) for message in messages]
    diff = diff_trees(*found)

    [call] = [entry for entry in walked(diff) if entry["kind"] == "toolCall"]
    assert call["differs"] == ["outcome"]
    errors = [(call[side]["errorType"], call[side]["errorMessage"]) for side in ("left", "right")]
    assert errors == [(None, "the cuff is loose"), (None, "é" * 300)]


async def test_diff_shows_a_call_with_other_arguments_as_changed() -> None:
    one, other = again(sub_plans=2)
    events = [
        event.model_copy(
            update={
                "tool_calls": tuple(
                    call.model_copy(update={"arguments": '{"number":7}'})
                    if call.arguments == '{"number":0}'
                    else call
                    for call in event.tool_calls
                )
            }
        )
        if event.type == "thought_recorded"
        else event
        for event in other.events
    ]

    diff = diff_trees(*await trees(one.events, events))

    assert changes(diff) == [("toolCall", "check", "changed", ["arguments"])]


async def test_diff_shows_a_sub_plan_with_another_title_as_changed() -> None:
    one, other = again(sub_plans=1)
    events = [
        event.model_copy(update={"title": "Look into it", "agent_name": "surgeon"})
        if event.type == "plan_started" and event.plan_id != event.root_plan_id
        else event
        for event in other.events
    ]

    diff = diff_trees(*await trees(one.events, events))

    assert changes(diff) == [("plan", "Check 0", "changed", ["name"])]


async def test_diff_shows_durations_only_if_one_is_notably_longer() -> None:
    one, other = again(sub_plans=0)
    [left, right] = await trees(one.events, other.events)
    for ours, theirs, differs in ((1000, 1249, False), (1000, 1250, True), (10, 60, False)):
        left.duration_ms, right.duration_ms = float(ours), float(theirs)
        for pair in ((left, right), (right, left)):
            found = diff_trees(*pair)["root"]["differs"]
            assert ("duration" in found) is differs


def test_diff_of_ten_thousand_siblings_with_one_name_is_fast() -> None:
    def numbered(start: int) -> list[tuple[str, int]]:
        return [("measure", number) for number in range(start, start + 10_000)]

    def whole(item: tuple[str, int]) -> tuple[object, ...]:
        return item

    def name(item: tuple[str, int]) -> tuple[object, ...]:
        return (item[0],)

    pairs = aligned(numbered(0), numbered(5_000), [whole, name])

    assert sum(a == b for a, b in pairs) == 5_000


Choice = tuple[str, str, str]
"""A tool, its arguments and its result."""


def parallel(choices: Sequence[Choice], sends_one_message: bool) -> list[Event]:
    """Return a run whose first round chooses calls; the second round receives their results."""
    run, second = Moments(), new_id()
    question = {"role": "user", "content": "How was my week?"}
    calls = tuple(
        ChosenToolCall(tool_call_id=new_id(), name=name, arguments=arguments)
        for name, arguments, _ in choices
    )
    if sends_one_message:
        parts = [
            {"type": "tool_result", "tool_use_id": str(number), "content": result}
            for number, (_, _, result) in enumerate(choices)
        ]
        results: list[Any] = [{"role": "user", "content": parts}]
    else:
        results = [
            {"role": "tool", "tool_call_id": str(number), "content": result}
            for number, (_, _, result) in enumerate(choices)
        ]
    ends = [
        run.call_finished(tool_call_id=call.tool_call_id, result=result)
        for call, (_, _, result) in zip(calls, choices, strict=True)
    ]
    return [
        run.plan_started(title="Weekly", steps=(run.planned(),)),
        run.thought_started(messages=json.dumps([question])),
        _answer(run, run.think_act, thought=None, tool_calls=calls),
        *ends,
        run.thought_started(
            think_act_id=second, position=1, messages=json.dumps([question, *results])
        ),
        _answer(run, second, thought="It is calm."),
    ]


chosen_calls = st.lists(
    st.tuples(
        st.sampled_from(("measure", "look_up")),
        st.sampled_from(("{}", '{"day":1}', '{"day":2}')),
        st.sampled_from(("78", "81")),
    ),
    max_size=6,
)


@settings(max_examples=scaled(60))
@given(
    orders=chosen_calls.flatmap(
        lambda choices: st.tuples(st.just(choices), st.permutations(choices))
    ),
    sends_one_message=st.booleans(),
)
async def test_the_order_of_parallel_calls_is_no_difference(
    orders: tuple[list[Choice], list[Choice]], sends_one_message: bool
) -> None:
    choices, permuted = orders

    diff = await compared(
        parallel(choices, sends_one_message), parallel(permuted, sends_one_message)
    )

    assert changes(diff) == []


async def test_parallel_calls_match_by_arguments_then_by_tool() -> None:
    left = [("measure", "1", "a"), ("measure", "2", "b"), ("look_up", "3", "c")]
    right = [("ask", "4", "d"), ("look_up", "3", "c"), ("measure", "9", "a"), ("measure", "1", "a")]

    diff = await compared(parallel(left, False), parallel(right, False))

    calls = [entry for entry in walked(diff) if entry["kind"] == "toolCall"]
    assert [(each["name"], str(each["change"]), each["differs"]) for each in calls] == [
        ("ask", "added", []),
        ("measure", "same", []),
        ("measure", "changed", ["arguments", "result"]),
        ("look_up", "same", []),
    ]


@given(left=words, right=words)
def test_alignment_in_any_order_pairs_all_equal_items(left: list[str], right: list[str]) -> None:
    pairs = aligned_in_any_order(left, right, [lambda word: (word,)])

    assert [a for a, _ in pairs if a is not None] == left
    assert sorted(b for _, b in pairs if b is not None) == sorted(right)
    matched = Counter(a for a, b in pairs if a is not None and b is not None)
    assert matched == Counter(left) & Counter(right)
    assert all(a == b for a, b in pairs if a is not None and b is not None)


def two_rounds(
    arguments: str, answer: str = "It is calm.", result: str = '{"pulse": 78}', call_id: str = "a"
) -> list[Event]:
    """Return a run of two rounds: the first calls a tool, the second answers."""
    run, second = Moments(), new_id()
    question = {"role": "user", "content": "How was my week?"}
    chosen = {"role": "assistant", "tool_calls": [{"id": call_id, "function": {"name": "measure"}}]}
    returned = {"role": "tool", "tool_call_id": call_id, "content": result}
    call = ChosenToolCall(tool_call_id=run.call, name="measure", arguments=arguments)
    return [
        run.plan_started(title="Weekly", steps=(run.planned(),)),
        run.thought_started(messages=json.dumps([question])),
        _answer(run, run.think_act, thought=None, tool_calls=(call,)),
        run.call_finished(result=result),
        run.thought_started(
            think_act_id=second, position=1, messages=json.dumps([question, chosen, returned])
        ),
        _answer(run, second, thought=answer),
    ]


def _answer(run: Moments, round_id: UUID, **fields: Any) -> Event:
    place: Any = {"root_plan_id": run.root, "plan_id": run.root, "step_id": run.step}
    at = START + timedelta(seconds=3)
    return ThoughtRecorded(at=at, **place, think_act_id=round_id, status=Status.SUCCEEDED, **fields)


async def compared(left: list[Event], right: list[Event]) -> Entry:
    """Return the comparison of two runs, with the messages of their rounds."""
    found: list[Any] = []
    for events in (left, right):
        recording = recording_in_memory()
        await recording.write(events)
        root = events[0].root_plan_id
        messages = messages_of(recording, root)
        tree = compared_tree(recording.rows(root))
        found.append((tree, {str(k): v for k, v in messages.items()}))
    return diff_trees(
        found[0][0], found[1][0], left_messages=found[0][1], right_messages=found[1][1]
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"city":"Brest","days":[1,2]}', '{ "days" : [1, 2],\n"city": "Brest" }'),
        ('{"name":"\\u00e9t\\u00e9"}', '{"name":"été"}'),
        ('{"a":{"b":1,"c":null}}', ' {"a": {"c": null, "b": 1}}'),
    ],
)
async def test_diff_ignores_white_space_and_key_order_of_json(left: str, right: str) -> None:
    assert changes(await compared(two_rounds(left), two_rounds(right, call_id="b"))) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"id":9007199254740993}', '{"id":9007199254740992}'),
        ('{"share":1.0}', '{"share":1}'),
        ('{"days":[1,2]}', '{"days":[2,1]}'),
        ('{"city": "Brest"', '{"city":"Brest"'),  # not JSON
        ("NaN ", "NaN"),
    ],
)
async def test_diff_shows_different_values_and_texts(left: str, right: str) -> None:
    diff = await compared(two_rounds(left), two_rounds(right))

    assert changes(diff) == [("toolCall", "measure", "changed", ["arguments"])]


async def test_diff_names_rounds_by_their_answers() -> None:
    diff = await compared(two_rounds("{}"), two_rounds("{}", answer="It is stormy."))
    first, second = [entry for entry in walked(diff) if entry["kind"] == "thinkAct"]

    assert (first["name"], first["left"]["calls"]) == (None, ["measure"])
    assert (second["left"]["name"], second["right"]["name"]) == ("It is calm.", "It is stormy.")
    assert (str(second["change"]), second["differs"]) == ("changed", ["result"])


async def test_diff_shows_a_new_message_in_the_first_round_that_has_it() -> None:
    diff = await compared(two_rounds("{}"), two_rounds("{}", result='{"pulse": 81}'))

    assert changes(diff) == [
        ("toolCall", "measure", "changed", ["result"]),
        ("thinkAct", "It is calm.", "changed", ["messages"]),
    ]


def test_diff_ignores_repeated_messages_and_call_ids() -> None:
    def sent(question: str, call_id: str) -> list[Any]:
        return [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "I measure."},
            {"role": "tool", "tool_call_id": call_id, "content": "78"},
        ]

    one, other = sent("How was it?", "call_1"), sent("How was my week?", "call_2")
    digests = {
        new_messages(json.dumps(messages[:1]), json.dumps(messages)) for messages in (one, other)
    }
    assert len(digests) == 1
    assert new_messages(None, json.dumps(one)) != new_messages(None, json.dumps(other))
    assert new_messages(None, "cut [") != new_messages(None, "cut {")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(text=st.text() | st.builds(json.dumps, json_values), indent=st.integers(0, 3))
def test_digest_depends_only_on_the_json_value(text: str, indent: int) -> None:
    try:
        other = json.dumps(json.loads(text), indent=indent)
    except ValueError:
        other = text
    if "e" not in text and "." not in text:  # Python writes some numbers in another form
        assert digest_of(text) == digest_of(other)


def worked(model: str, cost: str, tokens: int, error: str | None = None) -> list[Event]:
    """Return a run whose tool call opens an agent, with a model call of each."""
    run, inner = Moments(), Moments()
    inner.root = run.root
    sub_plan = new_id()
    outcome: dict[str, Any] = {}
    if error is not None:
        outcome = {"status": Status.FAILED, "error": ErrorInfo(type=error, message="no answer")}

    def answered(of: Moments, plan: UUID) -> ThoughtRecorded:
        return ThoughtRecorded(
            at=START,
            root_plan_id=run.root,
            plan_id=plan,
            step_id=of.step,
            think_act_id=of.think_act,
            status=Status.SUCCEEDED,
            model=model,
            input_tokens=tokens,
            output_tokens=0,
            cost_usd=Decimal(cost),
        )

    return [
        run.plan_started(),
        run.step_started(),
        answered(run, run.root),
        run.call_started(name="ask_ledger", think_act_id=run.think_act),
        run.sub_plan_started(sub_plan, run.call),
        inner.step_started(plan=sub_plan),
        answered(inner, sub_plan),
        inner.call_started(name="http_get", think_act_id=inner.think_act, plan_id=sub_plan),
        inner.call_finished(**outcome).model_copy(update={"plan_id": sub_plan}),
        run.plan_finished(plan=sub_plan, **outcome),
        run.call_finished(**outcome),
        run.plan_finished(**outcome),
    ]


async def test_summary_names_the_first_divergence_models_and_cost() -> None:
    left, right = await trees(
        worked("gpt-5-mini", "0.25", 10), worked("gpt-5", "0.625", 10, "TimeoutError")
    )

    diff = diff_trees(left, right)

    summary = diff["summary"]
    first = summary["first"]
    assert first is not None
    assert first["left"] is not None
    assert first["right"] is not None
    assert (first["kind"], first["name"]) == ("toolCall", "http_get")
    assert (first["left"]["status"], first["right"]["errorType"]) == ("succeeded", "TimeoutError")
    assert summary["models"] == [{"left": "gpt-5-mini", "right": "gpt-5", "calls": 2}]
    assert summary["costFactor"] == 2.5
    inheriting = [entry["name"] for entry in walked(diff) if entry["inherits"]]
    assert "ask_ledger" in inheriting
    assert summary["inherited"] == len(inheriting)
    same = diff_trees(left, left)["summary"]
    assert (same["first"], same["models"], same["inherited"]) == (None, [], 0)


async def test_a_model_call_has_its_own_tokens_and_cost() -> None:
    left, right = await trees(worked("gpt-5", "0.25", 10), worked("gpt-5", "0.25", 10))

    calls = [each for each in walked(diff_trees(left, right)) if each["kind"] == "thinkAct"]

    assert [call["left"]["totals"].cost_usd for call in calls] == [0.25, 0.25]
    assert [call["left"]["totals"].input_tokens for call in calls] == [10, 10]
