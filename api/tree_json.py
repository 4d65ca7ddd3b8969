"""A tree as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tracer.nodes import PlanNode

_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")


def tree_json(top: PlanNode | dict[str, Any], children: Sequence[str] = _CHILDREN) -> bytes:
    """Return a tree as JSON, however deep it is.

    Args:
        top: Its top.
        children: Where its nodes have those below them, as lists.
    """
    try:
        return msgspec.json.encode(top)
    except RecursionError:
        return _node_by_node(top, children)


def _node_by_node(top: Any, children: Sequence[str]) -> bytes:
    written: list[bytes] = []
    waiting: list[Any] = [top]
    while waiting:
        item = waiting.pop()
        if isinstance(item, bytes):
            written.append(item)
            continue
        fields = _fields(item)
        flat = {name: value for name, value in fields.items() if name not in children}
        written.append(msgspec.json.encode(flat)[:-1])
        rest: list[Any] = []
        for name in children:
            if name in fields:
                rest.append(f',"{name}":['.encode())
                for place, child in enumerate(fields[name]):
                    rest += [b",", child] if place else [child]
                rest.append(b"]")
        waiting += [b"}", *reversed(rest)]
    return b"".join(written)


def _fields(item: Any) -> dict[str, Any]:
    """Return a node's fields by their names in JSON, without going into them."""
    if isinstance(item, dict):
        return item
    names = zip(item.__struct_encode_fields__, item.__struct_fields__, strict=True)
    fields = {encoded: getattr(item, name) for encoded, name in names}
    return {"kind": item.kind} | {
        name: value for name, value in fields.items() if value is not msgspec.UNSET
    }
