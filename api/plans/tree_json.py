"""Encode a tree of any depth as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tracer.lineage.nodes import PlanNode

_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")


def tree_json(
    top: PlanNode | Mapping[str, Any],
    children: Sequence[str] = _CHILDREN,
    encode: Callable[[object], bytes] = msgspec.json.encode,
) -> bytes:
    """Return a tree as JSON.

    Args:
        top: The root: a node, or a dictionary.
        children: The names of the fields that contain a node's lists of children.
        encode: Encodes a value as JSON; raises `RecursionError` if the value nests too deeply.
    """
    try:
        return encode(top)
    except RecursionError:
        return b"".join(_node_by_node(top, children, encode))


def _node_by_node(
    top: Any, children: Sequence[str], encode: Callable[[object], bytes]
) -> Iterator[bytes]:
    pending: list[Any] = [top]
    while pending:
        item = pending.pop()
        if isinstance(item, bytes):
            yield item
            continue
        fields = _fields(item)
        below = {name: fields.pop(name) for name in children if name in fields}
        yield encode(fields)[:-1]
        pending.append(b"}")
        while below:
            name, nodes = below.popitem()
            pending.append(b"]")
            for place in range(len(nodes) - 1, -1, -1):
                pending.append(nodes[place])
                if place:
                    pending.append(b",")
            pending.append(f',"{name}":['.encode())


def _fields(item: Any) -> dict[str, Any]:
    """Return a node's fields by their JSON names, without converting their values."""
    if isinstance(item, dict):
        return item.copy()
    names = zip(item.__struct_encode_fields__, item.__struct_fields__, strict=True)
    fields = {encoded: getattr(item, name) for encoded, name in names}
    return {"kind": item.kind} | {
        name: value for name, value in fields.items() if value is not msgspec.UNSET
    }
