"""Find the input messages of a round that the previous round did not have.

A request to a model repeats the whole conversation. If whole requests were compared, each round
after the first difference would differ, too.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

from tracer.lineage.digests import value_of
from tracer.records.conversation import ConversationMessage, conversation
from tracer.text import nests_too_deep


def new_messages(before: str | None, messages: str) -> str:
    """Return a digest of the messages that `messages` adds to `before`.

    Answers of the model are left out, because the earlier rounds are compared by them. So are the
    ids of calls: providers choose new ones in each run.

    Args:
        before: The messages of the previous round, as the text of JSON; None for the first round.
        messages: The messages of this round.
    """
    added = conversation(_added(before, messages))
    if added is None:  # not JSON, for example because it was cut
        return sha256(messages.encode()).hexdigest()
    compared = [_compared(message) for message in added if message.role != "assistant"]
    return sha256(orjson.dumps(compared)).hexdigest()


def _added(before: str | None, messages: str) -> str:
    """Return the messages of the second list after the beginning that both lists share."""
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
    return {"role": message.role, "name": message.name, "parts": parts}
