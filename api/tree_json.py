"""A tree as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from tracer.lineage import Node

_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")


def tree_json(top: Node, children: Sequence[str] = _CHILDREN) -> bytes:
    """Return a tree as JSON, however deep it is.

    Args:
        top: Its top.
        children: Where its nodes have those below them, as lists.
    """
    try:
        return orjson.dumps(top, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError:
        # orjson nests 254 deep, which is 31 sub-plans.
        return _node_by_node(top, children)


def _node_by_node(top: Node, children: Sequence[str]) -> bytes:
    written: list[bytes] = []
    waiting: list[bytes | Node] = [top]
    while waiting:
        item = waiting.pop()
        if isinstance(item, bytes):
            written.append(item)
            continue
        flat = {name: value for name, value in item.items() if name not in children}
        written.append(orjson.dumps(flat, option=orjson.OPT_UTC_Z)[:-1])
        rest: list[bytes | Node] = []
        for name in children:
            if name in item:
                rest.append(f',"{name}":['.encode())
                for place, child in enumerate(item[name]):
                    rest += [b",", child] if place else [child]
                rest.append(b"]")
        waiting += [b"}", *reversed(rest)]
    return b"".join(written)
