"""Building the tree of a run from its rows: parents, totals, depth, and unplaced records."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.trees import Node, TreeRows, build_tree

ENDINGS = ("failed", "succeeded")


def plan(name: str, call: str | None = None, **fields: Any) -> Node:
    links = {"planId": name, "rootPlanId": "root", "toolCallId": call, "openedByStepId": None}
    return {**links, "status": "succeeded", **fields}


def step(name: str, plan: str | None, **fields: Any) -> Node:
    return {"stepId": name, "planId": plan, "status": "succeeded", **fields}


def think_act(name: str, step: str | None, tokens: int = 0, **fields: Any) -> Node:
    usage = {"inputTokens": tokens, "outputTokens": None, "costUsd": tokens / 1000}
    return {"thinkActId": name, "stepId": step, "status": "succeeded", **usage, **fields}


def call(name: str, step: str | None, think_act: str | None = None, **fields: Any) -> Node:
    links = {"toolCallId": name, "stepId": step, "thinkActId": think_act, "parentToolCallId": None}
    return {**links, "name": name, "arguments": "{}", "status": "succeeded", **fields}


OWN_ID = {"toolCall": "toolCallId", "thinkAct": "thinkActId", "step": "stepId", "plan": "planId"}


def drawn(node: Node, indent: int = 0) -> str:
    """Return the tree as indented text: each node's id, own and cumulative tool calls."""
    name = next(
        node[key] for key in ("toolCallId", "thinkActId", "stepId", "planId") if is_id(node, key)
    )
    lines = ["  " * indent + f"{node['kind']} {name} {calls(node)}"]
    for key in ("agentExecutions", "thinkActs", "toolCalls", "subPlans"):
        lines += [drawn(child, indent + 1) for child in node.get(key, ())]
    lines += ["  " * (indent + 1) + "? " + drawn(each).strip() for each in node.get("unplaced", ())]
    return "\n".join(lines)


def is_id(node: Node, key: str) -> bool:
    return OWN_ID[node["kind"]] == key


def calls(node: Node) -> str:
    return f"{node['own']['toolCalls']}/{node['cumulative']['toolCalls']}"


def test_tree_puts_each_record_below_its_parent_and_counts_its_calls() -> None:
    rows = TreeRows(
        plans=[
            plan("root"),
            plan("a", "opens-a"),
            plan("b", "opens-b"),
            plan("deep", "opens-deep"),
        ],
        steps=[step("s", "root"), step("sa", "a"), step("sb", "b")],
        think_acts=[think_act("t", "s"), think_act("ta", "sa")],
        tool_calls=[
            call("opens-a", "s", "t"),
            call("opens-b", "s", "t"),
            call("opens-deep", "sa", "ta"),
            call("outside", "sb"),
        ],
    )

    assert drawn(build_tree(rows, "root")) == (
        "plan root 2/4\n"
        "  step s 2/4\n"
        "    thinkAct t 2/4\n"
        "      toolCall opens-a 1/2\n"
        "        plan a 1/1\n"
        "          step sa 1/1\n"
        "            thinkAct ta 1/1\n"
        "              toolCall opens-deep 1/1\n"
        "                plan deep 0/0\n"
        "      toolCall opens-b 1/2\n"
        "        plan b 1/1\n"
        "          step sb 1/1\n"
        "            toolCall outside 1/1"
    )


def test_batch_items_and_their_sub_plans_are_nested() -> None:
    rows = TreeRows(
        plans=[plan("root"), plan("one", "item-1")],
        steps=[step("s", "root")],
        tool_calls=[
            call("batch", "s"),
            call("item-0", "s", parentToolCallId="batch"),
            call("item-1", "s", parentToolCallId="batch"),
        ],
    )

    assert drawn(build_tree(rows, "root")) == (
        "plan root 3/3\n"
        "  step s 3/3\n"
        "    toolCall batch 3/3\n"
        "      toolCall item-0 1/1\n"
        "      toolCall item-1 1/1\n"
        "        plan one 0/0"
    )


def test_tree_puts_a_hand_off_below_the_step_that_opened_it() -> None:
    rows = TreeRows(
        plans=[plan("root"), plan("other", openedByStepId="s")], steps=[step("s", "root")]
    )
    tree = build_tree(rows, "root")

    assert [each["planId"] for each in tree["agentExecutions"][0]["subPlans"]] == ["other"]
    assert tree["subPlanCount"] == 1
    assert tree["agentExecutions"][0]["subPlans"][0]["parentActToolCall"] is None


def test_records_without_a_parent_are_unplaced_but_counted_in_the_root() -> None:
    rows = TreeRows(
        plans=[plan("root"), plan("lost", "not-there")],
        steps=[step("placeholder", None), step("sl", "lost")],
        tool_calls=[call("loose", None), call("under-lost", "sl", status="failed")],
    )
    tree = build_tree(rows, "root")

    assert {(n["kind"], calls(n)) for n in tree["unplaced"]} == {
        ("plan", "1/1"),
        ("step", "0/0"),
        ("toolCall", "1/1"),
    }
    assert (tree["own"]["toolCalls"], tree["cumulative"]["toolCalls"]) == (0, 2)
    assert tree["cumulative"]["failures"] == 1


def test_tree_cuts_circles_of_plans_and_shows_each_plan_once() -> None:
    rows = TreeRows(
        plans=[plan("root"), plan("a", "in-b"), plan("b", "in-a"), plan("below", "in-below")],
        steps=[step("sa", "a"), step("sb", "b")],
        tool_calls=[call("in-a", "sa"), call("in-b", "sb"), call("in-below", "sb")],
    )
    tree = build_tree(rows, "root")

    assert [node["planId"] for node in tree["unplaced"]] == ["a"]
    assert tree["cumulative"]["toolCalls"] == 3


def test_tree_shows_a_sub_plan_that_opens_itself_once() -> None:
    rows = TreeRows(
        plans=[plan("self", "inside")], steps=[step("s", "self")], tool_calls=[call("inside", "s")]
    )

    assert drawn(build_tree(rows, "self")) == (
        "plan self 1/1\n  step s 1/1\n    toolCall inside 1/1"
    )


def test_depth_limits_the_nodes_of_a_tree_but_not_its_totals() -> None:
    def rows() -> TreeRows:
        return TreeRows(
            plans=[plan("root"), plan("a", "c0"), plan("b", "c1")],
            steps=[step("s0", "root"), step("s1", "a"), step("s2", "b")],
            think_acts=[think_act("t2", "s2", tokens=7)],
            tool_calls=[call("c0", "s0"), call("c1", "s1")],
        )

    for depth, shown in ((1, ["root"]), (2, ["root", "a"]), (3, ["root", "a", "b"])):
        tree = build_tree(rows(), "root", depth)
        names = []
        node: Node | None = tree
        while node is not None:
            names.append(node["planId"])
            opener = node["agentExecutions"][0]["toolCalls"] if node["agentExecutions"] else []
            node = opener[0]["subPlans"][0] if opener and opener[0]["subPlans"] else None

        assert names == shown
        assert tree["cumulative"]["inputTokens"] == 7
        assert tree["agentExecutions"][0]["toolCalls"][0]["subPlanCount"] == 1


def test_tree_of_a_sub_plan_names_the_call_that_opened_it() -> None:
    opener = call("opens", None, arguments='{"a":1}')
    tree = build_tree(TreeRows(plans=[plan("sub", "opens")], opener=opener), "sub")

    assert tree["parentActToolCall"] == {
        "toolCallId": "opens",
        "name": "opens",
        "arguments": '{"a":1}',
        "status": "succeeded",
    }
    assert "unplaced" not in tree


names = st.sampled_from([f"n{number}" for number in range(6)])
links = names | st.none()


@given(
    st.dictionaries(names, links),
    st.dictionaries(names, links),
    st.dictionaries(names, st.tuples(links, links)),
)
def test_tree_has_each_record_once(
    plans: dict[str, str | None],
    steps: dict[str, str | None],
    tool_calls: dict[str, tuple[str | None, str | None]],
) -> None:
    rows = TreeRows(
        plans=[plan("root"), *(plan(name, opener) for name, opener in plans.items())],
        steps=[step(name, parent) for name, parent in steps.items()],
        tool_calls=[
            call(name, parent, parentToolCallId=batch)
            for name, (parent, batch) in tool_calls.items()
        ],
    )
    for each in plans:
        build_tree(deepcopy(rows), each)
    tree = build_tree(rows, "root")

    seen: list[tuple[str, str]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        seen.append((node["kind"], node[OWN_ID[node["kind"]]]))
        for key in ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced"):
            waiting += node.get(key, ())
    everything = [("plan", name) for name in ("root", *plans)]
    everything += [("step", name) for name in steps]
    everything += [("toolCall", name) for name in tool_calls]
    assert sorted(seen) == sorted(everything)
    assert tree["cumulative"]["toolCalls"] == len(tool_calls)
