"""Find the input messages of a model call that the previous model call did not have.

Each request to a model repeats the whole conversation. If whole requests were compared, all
requests after the first difference would differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import groupby
from typing import Any

import orjson

from tracer.lineage.digests import value_of
from tracer.records.conversation import ConversationMessage, conversation
from tracer.text import nests_too_deep


def new_messages(before: str | None, messages: str) -> str:
    """Return a digest of the messages that `messages` adds to `before`.

    The digest ignores three differences. The model's own answers are left out, because they are
    compared as results of earlier model calls. Call ids are left out, because the provider chooses
    new ones in each run. The results of parallel tool calls may be in any order.

    Args:
        before: The messages of the previous model call, as JSON text; None for the first model
            call.
        messages: The messages of this model call, as JSON text.
    """
    added = conversation(_added(before, messages))
    if added is None:  # not JSON, for example because it was cut
        return sha256(messages.encode()).hexdigest()
    compared = [_compared(message) for message in added if message.role != "assistant"]
    return sha256(orjson.dumps(_in_one_order(compared))).hexdigest()


def _in_one_order(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort each sequence of tool results, because parallel tool calls end in any order."""
    ordered: list[dict[str, Any]] = []
    for are_results, group in groupby(messages, key=_is_result):
        adjacent = list(group)
        ordered += sorted(adjacent, key=orjson.dumps) if are_results else adjacent
    return ordered


def _is_result(message: dict[str, Any]) -> bool:
    """Return whether a message consists only of tool results.

    Some APIs put all results of a round into one message.
    """
    parts = message["parts"]
    return message["role"] == "tool" or {part["type"] for part in parts} == {"toolResult"}


def _added(before: str | None, messages: str) -> str:
    """Return `messages` without the beginning that it shares with `before`, as JSON text."""
    known, sent = _listed(before), _listed(messages)
    if not known or sent is None:
        return messages
    same = 0
    while same < min(len(known), len(sent)) and known[same] == sent[same]:
        same += 1
    return orjson.dumps(sent[same:]).decode()


def _listed(messages: str | None) -> list[Any] | None:
    if messages is None or nests_too_deep(messages):
        return None
    try:
        value = orjson.loads(messages)
    except orjson.JSONDecodeError:
        return None
    return (
        value if isinstance(value, list) and not isinstance(next(iter(value), None), str) else None
    )


def _compared(message: ConversationMessage) -> dict[str, Any]:
    parts = [part.model_dump(exclude={"id"}) for part in message.parts]
    for part in parts:
        for name in ("text", "arguments"):
            if name in part:
                part[name] = value_of(part[name])
    if all(part["type"] == "toolResult" for part in parts):
        parts.sort(key=orjson.dumps)
    return {"role": message.role, "name": message.name, "parts": parts}
