"""Two spans with one id are kept apart if both have ended and their starts differ."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, make_span, outline, projection_of, spans_from, tool
from tests.otel.projections import differences, message_of, project, project_messages
from tracer.otel.otlp.blocks import (
    blocks_with,
    contents_of,
    merge_messages,
    pack_block,
    unpack_block,
)
from tracer.records import Kind

FIRST, SECOND = chat(2, parent=1, at=(1, 2)), chat(2, tokens=5, parent=1, at=(3, 4))


def test_two_ended_spans_with_one_id_are_two_rounds() -> None:
    run = projection_of(agent(1, "a"), FIRST, SECOND)

    assert outline(run) == ["plan a", "  step a", "    round 1", "    round 5"]


def test_first_span_keeps_its_record_if_a_second_with_its_id_arrives() -> None:
    before = projection_of(agent(1, "a"), FIRST).records[Kind.THINK_ACT]
    after = projection_of(agent(1, "a"), FIRST, SECOND).records[Kind.THINK_ACT]

    assert before.keys() < after.keys()


@pytest.mark.parametrize(
    "other",
    [
        chat(2, parent=1, at=(1, None)),
        chat(2, parent=1, at=(0.5, None)),
        chat(2, tokens=0, parent=1, at=(1, 1.5)),
    ],
    ids=["started", "started at another time", "ended earlier"],
)
def test_other_spans_with_one_id_are_versions_of_one_span(other: dict[str, Any]) -> None:
    run = projection_of(agent(1, "a"), FIRST, other)

    assert outline(run) == ["plan a", "  step a", "    round 1"]


def test_children_belong_to_the_span_of_that_id_that_was_running() -> None:
    run = projection_of(
        agent(1, "a"),
        tool(2, "one", parent=1, at=(1, 3)),
        tool(2, "two", parent=1, at=(4, 6)),
        agent(3, "b", parent=2, at=(2, 3)),
        agent(4, "c", parent=2, at=(5, 6)),
        agent(5, "late", parent=2, at=(8, 9)),
    )

    assert outline(run)[2:] == [
        "    call one None",
        "      plan b",
        "        step b",
        "      plan late",
        "        step late",
        "    call two None",
        "      plan c",
        "        step c",
    ]


def test_span_with_the_id_of_its_parent_is_below_it() -> None:
    run = projection_of(agent(2, "a", at=(0, 9)), tool(2, "x", parent=2, at=(1, 2)))

    assert outline(run) == ["plan a", "  step a", "    call x None"]


def test_repacked_spans_with_one_id_give_equal_records() -> None:
    spans = spans_from(
        agent(1, "a"),
        *(
            chat(2, tokens=at, parent=1, at=(at, end))
            for at in range(1, 6)
            for end in (None, at + 1)
        ),
        *(tool(3, "x", parent=2, at=(at + 0.5, at + 0.6)) for at in range(1, 6)),
        make_span(4, "open", parent=1, at=(2, None)),
        make_span(4, "open", parent=1, at=(3, None)),
    )
    arrived = datetime(2026, 1, 1, tzinfo=UTC)
    messages = [message_of(span) for span in spans]
    random.Random(1).shuffle(messages)

    blocks = blocks_with(merge_messages((each, arrived) for each in messages), 5_000)
    bodies = [block.body for block in blocks]
    packed = [unpack_block(body) for body in bodies]

    assert len(packed) > 1
    assert len(contents_of(bodies).spans) == 12
    assert len(contents_of(map(pack_block, messages)).spans) == 12
    assert differences(project_messages(packed), project(spans)) == []
