"""Trees that change, for the test that the viewer folds changes in as `build_tree` builds.

`python -m tests.live_tree_cases` writes the cases anew, one JSON text a line.
"""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from tests.trees import Node, TreeRows, build_tree
from tracer.lineage.nodes import ROWS
from tracer.lineage.tree import UNSTORED
from tracer.records.record_classes import Kind

FILE = Path(__file__).parents[1] / "web/src/run/live/live-tree-cases.jsonl"
CASES = 30
IDS = "abcde"
"""Few, so that records of several kinds have the same, and parents come late or never."""

_ID_NAMES = {"plan": "planId", "step": "stepId", "thinkAct": "thinkActId", "toolCall": "toolCallId"}
_Records = dict[tuple[str, str], Node]


def cases() -> list[dict[str, Any]]:
    """Return each case: a tree that is read, the messages that follow, and the tree after each."""
    return [_case(random.Random(seed)) for seed in range(CASES)]


def as_text() -> bytes:
    """Return the cases as the file holds them."""
    return b"".join(orjson.dumps(case) + b"\n" for case in cases())


def _case(chance: random.Random) -> dict[str, Any]:
    records: _Records = {("plan", "root"): _record(chance, "plan", "root")}
    _change(chance, records, chance.randint(0, 8))
    revision = 1
    before = _tree(records, revision)
    messages = []
    for _ in range(chance.randint(1, 3)):
        revision += chance.randint(1, 3)
        changes = _change(chance, records, chance.randint(0, 4))
        message = {"revision": revision, **changes}
        messages.append({**message, "tree": _tree(records, revision)})
    return {"before": before, "messages": messages}


def _change(chance: random.Random, records: _Records, count: int) -> Node:
    """Change, add and remove records, and return what a message says of it."""
    changed: _Records = {}
    removed: list[Node] = []
    for _ in range(count):
        kind = chance.choice(["plan", "step", "thinkAct", "toolCall", "toolCall"])
        place = (kind, "root" if kind == "plan" and chance.random() < 0.2 else chance.choice(IDS))
        changed[place] = records[place] = _record(chance, *place)
    for place in [each for each in records if each not in changed and each[1] != "root"]:
        if chance.random() < 0.1:
            del records[place]
            removed.append({"kind": place[0], "id": place[1]})
    return {"changed": list(deepcopy(changed).values()), "removed": removed}


def _record(chance: random.Random, kind: str, record_id: str) -> Node:
    def named() -> str | None:
        return None if chance.random() < 0.3 else chance.choice(IDS)

    record: Node = {
        "kind": kind,
        _ID_NAMES[kind]: record_id,
        "status": chance.choice(["running", "cancelled", "succeeded"]),
        "position": chance.choice([None, 0, 1, 2]),
    }
    if kind == "plan":
        opener = {"toolCallId": named(), "openedByStepId": named()}
        return {**record, "rootPlanId": "root", **opener}
    if kind == "step":
        return {**record, "planId": chance.choice(["root", "root", named()])}
    if kind == "thinkAct":
        usage = {"inputTokens": chance.choice([None, 7]), "outputTokens": 2}
        return {**record, "stepId": named(), **usage, "costUsd": chance.choice([None, 0.1, 0.25])}
    parents = {"stepId": named(), "thinkActId": named(), "parentToolCallId": None}
    if chance.random() < 0.6:
        parents["parentToolCallId"] = named()
    return {**record, **parents, "name": chance.choice(["measure", None]), "arguments": "{}"}


def _tree(records: _Records, revision: int) -> Node:
    def rows(kind: str) -> list[Node]:
        """Return the records of a kind as a store reads them: without their kind, in order."""
        found = [deepcopy(each) for place, each in records.items() if place[0] == kind]
        for each in found:
            del each["kind"]
        return sorted(
            found,
            key=lambda row: (row["position"] is None, row["position"] or 0, row[_ID_NAMES[kind]]),
        )

    every = TreeRows(
        plans=rows("plan"),
        steps=rows("step"),
        think_acts=rows("thinkAct"),
        tool_calls=rows("toolCall"),
        revision=replace(UNSTORED, number=revision),
    )
    return _said(build_tree(every, "root"))


def _said(node: Node) -> Node:
    """Return a tree without what the records here never say."""
    said = _record(random.Random(0), node["kind"], "").keys()
    unsaid = {*ROWS[Kind(node["kind"])].__struct_encode_fields__, "failureOrigins"} - said
    children = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")
    return {
        name: [_said(child) for child in value] if name in children else value
        for name, value in node.items()
        if name not in unsaid
    }


if __name__ == "__main__":
    FILE.write_bytes(as_text())
