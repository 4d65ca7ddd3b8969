"""Encoding a tree of any depth as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from api.routes.plans import tree_json
from tests.trees import complete, plain
from tracer.lineage import Row, TreeRows, build_tree
from tracer.lineage.tree import NODES, PlanNode, ToolCallNode
from tracer.records import Kind

BELOW = ("agent_executions", "tool_calls")

above = st.lists(st.integers(0, 30), max_size=30)


def node(kind: Kind, **fields: Any) -> Any:
    return NODES[kind](status="succeeded", **fields)


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


@given(above=above)
def test_tree_json_is_equal_if_encoded_at_once_or_node_by_node(above: list[int]) -> None:
    top, _ = tree(above)

    def encode(item: object) -> bytes:
        """Encode a node, as if one with nodes below it nested too deeply."""
        if isinstance(item, Row) and any(getattr(item, name, None) for name in BELOW):
            raise RecursionError
        return msgspec.json.encode(item)

    in_one_call = json.loads(tree_json(top))

    assert complete(json.loads(tree_json(top))) == json.loads(msgspec.json.encode(plain(top)))
    assert json.loads(tree_json(top, encode=encode)) == in_one_call


def test_tree_deeper_than_the_recursion_limit_is_encoded() -> None:
    depth = 30_000
    top, _ = tree([depth, *range(depth - 1)])

    written = tree_json(top)

    assert written.count(b'"kind":"toolCall"') == depth
    assert written.count(b"{") == written.count(b"}")
    assert written.endswith(b"]}")
