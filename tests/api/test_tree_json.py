"""Trees as JSON, in parts: whole, let go of as they are written, and others get their turn."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from api.large_answers import PART_BYTES, JsonInParts
from api.tree_json import LEVELS_AT_ONCE, tree_parts
from tests.trees import plain
from tracer.lineage import TreeRows, build_tree
from tracer.nodes import NODES, PlanNode, ToolCallNode
from tracer.records import Kind

above = st.lists(st.integers(0, 30), max_size=30)


def node(kind: Kind, **fields: Any) -> Any:
    nothing = dict.fromkeys(NODES[kind].__struct_fields__[: -len(NODES[kind].__struct_defaults__)])
    return NODES[kind](**{**nothing, "status": "succeeded", **fields})


def tree(above: list[int]) -> tuple[PlanNode, list[ToolCallNode]]:
    """Return a plan, and calls that each hang under an earlier one, or under the plan's step."""
    calls = [
        node(
            Kind.TOOL_CALL,
            tool_call_id=f"c{number}",
            step_id="s",
            parent_tool_call_id=f"c{parent}" if parent < number else None,
            result=f"“{number}”",
        )
        for number, parent in enumerate(above)
    ]
    plan = node(Kind.PLAN, plan_id="p", root_plan_id="p")
    step = node(Kind.STEP, step_id="s", plan_id="p")
    return build_tree(TreeRows([plan], [step], [], calls), "p"), calls


@given(above=above, at_once=st.integers(-1, 5))
def test_joined_parts_are_the_whole_tree(above: list[int], at_once: int) -> None:
    top, _ = tree(above)
    whole = json.loads(msgspec.json.encode(plain(top)))

    parts = list(tree_parts(top, calls_at_once=at_once))

    assert json.loads(b"".join(parts)) == whole
    assert len(parts) > 1 or len(above) <= at_once


def test_nodes_are_released_once_they_are_written() -> None:
    top, calls = tree([30] * 10)
    first = calls[0]
    del calls
    parts = tree_parts(top, calls_at_once=1)
    del top
    held = sys.getrefcount(first)

    while b'"c1"' not in next(parts):
        continue

    assert sys.getrefcount(first) < held
    assert b'"c9"' in b"".join(parts)


async def test_others_get_their_turn_between_the_parts_of_an_answer() -> None:
    pieces = [b"[1", *[b",1" * 1000] * 500, b"]"]
    turns = 0
    sent: list[Message] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def send(message: Message) -> None:  # as to a socket that has room
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("an answer asks for nothing")

    beside = asyncio.create_task(others())
    await JsonInParts(pieces)({"type": "http"}, receive, send)
    beside.cancel()

    start, *bodies = sent
    assert b"".join(each["body"] for each in bodies) == b"".join(pieces)
    assert max(len(each["body"]) for each in bodies) == PART_BYTES
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
    assert turns >= len(bodies) - 2 >= 3
    assert (b"content-type", b"application/json") in start["headers"]


def test_encoding_of_a_deep_tree_seldom_fails() -> None:
    failures = 0

    def encode(item: object) -> bytes:
        nonlocal failures
        try:
            return msgspec.json.encode(item)
        except RecursionError:
            failures += 1
            raise

    depth = 3000
    top, _ = tree([depth, *range(depth - 1)])

    written = b"".join(tree_parts(top, calls_at_once=5000, encode=encode))

    assert written.count(b'"kind":"toolCall"') == depth
    assert 0 < failures <= depth / LEVELS_AT_ONCE
