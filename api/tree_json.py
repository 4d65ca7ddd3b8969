"""A tree as JSON, written part by part: others get their turn in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tracer.nodes import PlanNode

_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")

CALLS_AT_ONCE = 100
"""A node is written in one call together with so many tool calls below it: within a millisecond, in
which nothing else goes on."""

LEVELS_AT_ONCE = 100
"""Where a node is too deep to be written in one call, those so many levels below it are not tried:
each that fails has been written in vain, with all that stands before its depth."""


def tree_json(top: PlanNode | dict[str, Any], children: Sequence[str] = _CHILDREN) -> bytes:
    """Return a tree as JSON; see `tree_parts`."""
    return b"".join(tree_parts(top, children))


def tree_parts(
    top: PlanNode | dict[str, Any],
    children: Sequence[str] = _CHILDREN,
    calls_at_once: int = CALLS_AT_ONCE,
    encode: Callable[[object], bytes] = msgspec.json.encode,
) -> Iterator[bytes]:
    """Yield a tree as JSON, however deep it is. What was yielded is kept no longer.

    Args:
        top: Its top: a node, or a dictionary. Of dictionaries nobody knows how much lies below, so
            they are one part, unless they nest deeper than can be written in one call.
        children: Where its nodes have those below them, as lists.
        calls_at_once: How many tool calls below a node are written in one call, at most.
        encode: Encodes a value as JSON; raises `RecursionError` if the value nests too deeply.
    """
    waiting: list[Any] = [top]
    del top
    while waiting:
        item = waiting.pop()
        if isinstance(item, bytes):
            yield item
            continue
        levels = 0
        if isinstance(item, tuple):
            item, levels = item
        elif isinstance(item, dict) or item.cumulative.tool_calls <= calls_at_once:
            try:
                yield encode(item)
                continue
            except RecursionError:  # it is written node by node
                levels = LEVELS_AT_ONCE
        fields = _fields(item)
        below = {name: fields.pop(name) for name in children if name in fields}
        if not any(below.values()):
            yield encode(item)
            continue
        yield encode(fields)[:-1]
        waiting.append(b"}")
        while below:
            name, nodes = below.popitem()
            waiting.append(b"]")
            for place in range(len(nodes) - 1, -1, -1):
                waiting.append((nodes[place], levels - 1) if levels > 1 else nodes[place])
                if place:
                    waiting.append(b",")
            waiting.append(f',"{name}":['.encode())
            del nodes
        del item, fields


def _fields(item: Any) -> dict[str, Any]:
    """Return a node's fields by their names in JSON, without going into them."""
    if isinstance(item, dict):
        return item.copy()
    names = zip(item.__struct_encode_fields__, item.__struct_fields__, strict=True)
    fields = {encoded: getattr(item, name) for encoded, name in names}
    return {"kind": item.kind} | {
        name: value for name, value in fields.items() if value is not msgspec.UNSET
    }
