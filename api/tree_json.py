"""A tree as JSON."""

from __future__ import annotations

import orjson

from tracer.lineage import Node

_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")


def tree_json(top: Node) -> bytes:
    """Return a tree as JSON, however deep it is."""
    try:
        return orjson.dumps(top, option=orjson.OPT_UTC_Z)
    except orjson.JSONEncodeError:
        # orjson nests 254 deep, which is 31 sub-plans.
        return _node_by_node(top)


def _node_by_node(top: Node) -> bytes:
    written: list[bytes] = []
    waiting: list[bytes | Node] = [top]
    while waiting:
        item = waiting.pop()
        if isinstance(item, bytes):
            written.append(item)
            continue
        flat = {name: value for name, value in item.items() if name not in _CHILDREN}
        written.append(orjson.dumps(flat, option=orjson.OPT_UTC_Z)[:-1])
        rest: list[bytes | Node] = []
        for name in _CHILDREN:
            if name in item:
                rest.append(f',"{name}":['.encode())
                for place, child in enumerate(item[name]):
                    rest += [b",", child] if place else [child]
                rest.append(b"]")
        waiting += [b"}", *reversed(rest)]
    return b"".join(written)
