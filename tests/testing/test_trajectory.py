"""Trajectories: matches, differences, and updates of files."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import jsonschema_rs
import pytest
import yaml

from api.openapi import trajectory_schema
from tests.testing.conftest import Record
from tracer.client import Tracing
from tracer.errors import ConfigurationError
from tracer.reading import Plan, Run
from tracer.storage.memory import process_memory
from tracer.testing.plugin import flush
from tracer.testing.trajectory import (
    MOST_LINES,
    TrajectoryFile,
    compare,
    marked_tree,
    read_file,
    trajectory_of,
    write_file,
)

FIND = ("find", {"invoice": "INV-42"})
REFUND = ("refund", {"invoice": "INV-42", "amount": 12})
NOTIFY = ("notify", {"to": "Ada"})


def wanted(*rounds: Any, **fields: Any) -> TrajectoryFile:
    return TrajectoryFile.model_validate({"version": 1, "rounds": [*rounds], **fields})


def called(name: str, **fields: Any) -> dict[str, Any]:
    return {"call": name, **fields}


def differences(run: Plan, trajectory: TrajectoryFile) -> list[str]:
    return compare(run, trajectory).sentences


def test_calls_of_one_round_match_in_any_order(record: Record) -> None:
    run = record([FIND, NOTIFY], [REFUND])

    assert differences(run, wanted([called("notify"), called("find")], called("refund"))) == []


def test_strict_reports_calls_of_two_rounds_that_came_in_one(record: Record) -> None:
    run = record([FIND, REFUND])

    assert differences(run, wanted(called("find"), called("refund"))) == [
        "billing: the call `refund` is in round 1, expected in round 2."
    ]


def test_strict_reports_missing_and_added_calls_at_their_place(record: Record) -> None:
    run = record([FIND], [("delete", {})], [NOTIFY])
    comparison = compare(run, wanted(called("find"), called("refund"), called("notify")))

    assert comparison.sentences == [
        "billing: the call `refund` is missing.",
        "billing, round 2: the call `delete` is not expected.",
    ]
    assert [line.strip() for line in marked_tree(run, comparison)] == [
        "billing: succeeded",
        "round 1",
        'find {"invoice": "INV-42"}',
        "round 2",
        "+     delete {}  ← the call `delete` is not expected",
        "-     refund  ← missing",
        "round 3",
        'notify {"to": "Ada"}',
    ]


def test_any_ignores_order_but_not_other_calls(record: Record) -> None:
    trajectory = wanted(called("refund"), called("find"), order="any")

    assert differences(record([FIND], [REFUND]), trajectory) == []
    assert differences(record([FIND], [REFUND], [NOTIFY]), trajectory) == [
        "billing, round 3: the call `notify` is not expected."
    ]


def test_subset_allows_other_calls_and_agents(record: Record) -> None:
    run = record([FIND], [("ask", {}, ([NOTIFY],))], [REFUND])
    trajectory = wanted(called("refund"), called("ask"), order="subset")

    assert differences(run, trajectory) == []
    assert differences(record([FIND]), trajectory) == [
        "billing: the call `refund` is missing.",
        "billing: the call `ask` is missing.",
    ]


def test_pattern_leaves_the_call_that_a_value_needs(record: Record) -> None:
    run = record([("find", {"n": 1}), ("find", {"n": 2})])
    anything = called("find", arguments={"n": {"$ignored": True}})

    assert differences(run, wanted([anything, called("find", arguments={"n": 1})])) == []
    assert differences(run, wanted([called("find", arguments={"n": 2}), anything])) == []


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        ({"invoice": "INV-42", "amount": 12}, None),
        ({"invoice": {"$pattern": r"INV-\d+"}, "amount": {"$jsonSchema": {"maximum": 20}}}, None),
        ({"$ignored": True}, None),
        ({"invoice": "INV-43", "amount": 12}, 'argument `invoice`: "INV-42" instead of "INV-43"'),
        (
            {"invoice": {"$pattern": "INV"}, "amount": 12},
            'argument `invoice`: "INV-42" does not match INV',
        ),
        ({"invoice": "INV-42"}, "argument `amount`: 12 is not expected"),
        ({"invoice": "INV-42", "amount": True}, "argument `amount`: 12 instead of true"),
        (
            {"invoice": "INV-42", "amount": {"$jsonSchema": {"maximum": 5}}},
            "argument `amount`: 12 is greater than the maximum of 5",
        ),
        (
            {"invoice": "INV-42", "amount": 12, "to": "Ada"},
            'argument `to` is missing, expected "Ada"',
        ),
    ],
)
def test_arguments_match_by_value_pattern_and_schema(
    record: Record, arguments: Any, difference: str | None
) -> None:
    found = differences(record([REFUND]), wanted(called("refund", arguments=arguments)))

    assert found == ([] if difference is None else [f"billing, round 1, `refund`: {difference}."])


def test_sub_agents_are_nested_trajectories(record: Record) -> None:
    run = record([("ask", {}, ([FIND], [REFUND]))])
    nested = {"agent": "bookkeeper", "rounds": [called("find"), called("notify")]}

    assert differences(run, wanted(called("ask", opens=nested))) == [
        "bookkeeper: the call `notify` is missing.",
        "bookkeeper, round 2: the call `refund` is not expected.",
    ]
    assert differences(run, wanted(called("ask", opens="ignored"))) == []
    assert differences(run, wanted(called("ask"))) == [
        "billing, round 1, `ask`: the agent bookkeeper is not expected."
    ]
    assert differences(record([("ask", {})]), wanted(called("ask", opens=nested))) == [
        "billing, round 1, `ask`: opened no agent bookkeeper."
    ]


def test_never_holds_for_sub_agents_and_by_arguments(record: Record) -> None:
    run = record([("ask", {}, ([REFUND],))])

    assert differences(run, wanted(called("ask", opens="ignored"), never=["refund"])) == [
        "billing: `refund` must never be called."
    ]
    other = {"call": "refund", "arguments": {"invoice": "INV-1", "amount": 12}}
    assert differences(run, wanted(called("ask", opens="ignored"), never=[other])) == []


def test_limits_count_sub_agents(record: Record) -> None:
    run = record([("ask", {}, ([REFUND],))], cost=0.5)
    ask = called("ask", opens="ignored")

    assert differences(run, wanted(ask, limits={"rounds": 2, "tokens": 30, "cost": 1})) == []
    assert differences(run, wanted(ask, limits={"rounds": 1, "tokens": 29, "cost": 0.9})) == [
        "billing: rounds: 2, the limit is 1.",
        "billing: tokens: 30, the limit is 29.",
        "billing: cost: 1, the limit is 0.9.",
    ]


def test_unknown_cost_exceeds_each_limit(record: Record) -> None:
    [sentence] = differences(record([FIND]), wanted(called("find"), limits={"cost": 1}))

    assert sentence == "billing: cost: unknown, because a model has no price, the limit is 1."


def test_calls_outside_of_rounds_are_rounds_in_the_order_of_their_start(tracing: Tracing) -> None:
    with tracing.plan("By hand", agent="hand"):
        with tracing.tool_call("first", {}), tracing.tool_call("inner", {}):
            pass
        with tracing.tool_call("second", {}):
            pass
    flush()
    run = Run.of(process_memory.trees()[0])

    assert [[call.name for call in each.calls] for each in run.rounds] == [
        ["first", "inner"],
        ["second"],
    ]
    assert differences(run, wanted([called("first"), called("inner")], called("second"))) == []


def test_written_file_matches_the_run_and_its_schema(record: Record, tmp_path: Path) -> None:
    run = record([FIND, NOTIFY], [("ask", {"n": 1}, ([REFUND],))], cost=0.001)
    path = tmp_path / "trajectories" / "refund.yaml"

    write_file(path, trajectory_of(run))

    written = read_file(path)
    assert differences(run, written) == []
    plain = yaml.safe_load(path.read_text())
    jsonschema_rs.validate(trajectory_schema(), plain)
    assert plain["limits"] == {"rounds": 6, "tokens": 90, "cost": 0.006, "seconds": 5}
    assert [type(each) for each in plain["rounds"]] == [list, dict]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("2026-11-29", "2027-01-02"),
        ("due 2026-11-29T02:03:04.5Z (UTC)", "due 2027-01-02 12:00 (UTC)"),
        ("0192a3b4c5d67e8f90123456789abcde", "f" * 32),
        ("id=0192a3b4-c5d6-7e8f-9012-3456789abcde", "id=00000000-0000-7000-8000-000000000000"),
        (f"{gettempdir()}/pytest-1/out.txt", f"{gettempdir()}/pytest-22/out.txt"),
        (1_796_000_000, 1_900_000_000.5),
        ({"$pattern": "x"}, {"$pattern": "x"}),
    ],
)
def test_what_differs_in_each_run_is_written_as_a_pattern(
    record: Record, text: Any, other: Any
) -> None:
    trajectory = trajectory_of(record([("use", {"x": text, "y": "a.b"})]))

    assert differences(record([("use", {"x": other, "y": "a.b"})]), trajectory) == []
    assert len(differences(record([("use", {"x": "else", "y": "a.b"})]), trajectory)) == 1
    assert len(differences(record([("use", {"x": other, "y": "aXb"})]), trajectory)) == 1


def test_masked_values_are_written_as_a_pattern(record: Record) -> None:
    run = record([("log_in", {"password": "hunter2-hunter2"})])
    call = trajectory_of(run).model_dump()["rounds"][0]

    assert "hunter2" not in str(call)
    [pattern] = call["arguments"]["password"].values()
    assert re.fullmatch(pattern, "[masked: key]")
    assert differences(record([("log_in", {"password": "other-secret"})]), trajectory_of(run)) == []


def test_update_retains_order_patterns_and_limits_that_hold(record: Record) -> None:
    earlier = wanted(
        called("refund", arguments={"invoice": {"$pattern": "INV-.*"}, "amount": 1}),
        called("ask", opens="ignored"),
        order="any",
        never=["delete"],
        limits={"rounds": 100, "tokens": 10},
    )
    run = record([("ask", {}, ([FIND],))], [REFUND])

    new = trajectory_of(run, earlier)

    assert (new.order, new.never) == ("any", ["delete"])
    assert new.limits.model_dump() == {"rounds": 100, "tokens": 90, "cost": None, "seconds": 5}
    ask, refund = (each for each in new.rounds or () if not isinstance(each, list))
    assert refund.arguments == {"invoice": {"$pattern": "INV-.*"}, "amount": 12}
    assert ask.opens == "ignored"
    assert "arguments" not in ask.model_fields_set
    assert differences(run, new) == []


def test_update_of_a_subset_does_not_add_calls(record: Record) -> None:
    run = record([FIND], [REFUND])

    new = trajectory_of(run, wanted(called("refund"), order="subset"))

    assert [each.call for each in new.rounds or () if not isinstance(each, list)] == ["refund"]


def test_long_tree_shows_the_surroundings_of_differences(record: Record) -> None:
    run = record([("step", {"n": n}) for n in range(3 * MOST_LINES)])
    calls = [called("step", arguments={"n": 7 if n == 200 else n}) for n in range(3 * MOST_LINES)]

    lines = marked_tree(run, compare(run, wanted(calls)))

    assert len(lines) < 30
    assert [line for line in lines if line.startswith("!")] == [
        '!     step {"n": 200}  ← argument `n`: 200 instead of 7'
    ]


def test_recorded_texts_cannot_control_the_terminal(record: Record) -> None:
    run = record([("\x1b[31mred", {"x": "\x1b]0;title\x07\u202e\x9b"})])

    text = "\n".join(marked_tree(run, compare(run, wanted())))

    assert not set(text) & set("\x1b\x07\x9b\u202e")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version: 2", "version: Input should be 1"),
        ("version: 1\nround: []", "round: Extra inputs are not permitted"),
        ("version: [", "is not YAML"),
    ],
)
def test_file_that_is_no_trajectory_is_rejected_with_a_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "refund.yaml"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=re.escape(reason)):
        read_file(path)


@pytest.mark.parametrize("matcher", [{"$pattern": "("}, {"$jsonSchema": {"type": "nothing"}}])
def test_invalid_pattern_or_schema_is_named(record: Record, matcher: Any) -> None:
    trajectory = wanted(called("find", arguments={"invoice": matcher}))

    with pytest.raises(ConfigurationError, match="A pattern or schema of the file is invalid"):
        compare(record([FIND]), trajectory)


def test_update_raises_the_limits_of_a_sub_agent_that_do_not_hold(record: Record) -> None:
    nested = {"limits": {"rounds": 5, "tokens": 1}}
    run = record([("ask", {}, ([FIND],))])

    rounds = trajectory_of(run, wanted(called("ask", opens=nested))).rounds

    assert rounds is not None
    assert not isinstance(ask := rounds[0], list)
    assert ask.sub_agents[0].limits.model_dump(exclude_none=True) == {"rounds": 5, "tokens": 30}


def test_dates_in_a_file_are_texts(tmp_path: Path, record: Record) -> None:
    path = tmp_path / "refund.yaml"
    path.write_text("version: 1\nrounds:\n- call: book\n  arguments: {on: 2026-11-29}\n")

    with pytest.raises(ConfigurationError, match="does not exist"):
        read_file(tmp_path / "missing.yaml")
    assert differences(record([("book", {"on": "2026-11-29"})]), read_file(path)) == []
